"""The functions in a SavedModel: read without TensorFlow, and evaluated with keras.ops.

| module                                   | subject                                              |
| ---------------------------------------- | ---------------------------------------------------- |
| attributes, structures                   | what nodes and signatures say, as plain values       |
| nodes, programs                          | graphs, and their steps in order                     |
| reading                                  | functions, signatures, objects and variables         |
| support                                  | which ops of a function can be evaluated             |
| values                                   | handles of variables, lists of tensors               |
| running, functions                       | the evaluator                                        |
| widening                                 | programs in float32 that are in 16 bits              |
| control_flow, states, lists, plain       | the ops that it has itself                           |
| recurrent                                | CuDNN's LSTM and GRU                                 |

The ops are those of `operations.graph_ops`; here are only those that read or change state, or that
call functions. Nothing runs but operations that have a name there. Protos as of TF 2.15:
tensorflow/core/framework/{function,op_def,node_def,attr_value,tensor}.proto and
core/protobuf/{saved_object_graph,struct}.proto.
"""
