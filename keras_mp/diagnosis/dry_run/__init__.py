"""One training step that changes nothing; observers see its calls.

| module                       | subject |
| ---------------------------- | ------- |
| step                         | forward pass, loss, metrics and gradients of one batch that fits |
| program                      | the same as one compiled program |
| isolation                    | what is restored afterwards |
| observers                    | each call of a layer and op, in each time step, for an observer |
| source_lines                 | the user's line that makes a call |
| tensors                      | the tensors inside the model, and gradients by them |
"""
