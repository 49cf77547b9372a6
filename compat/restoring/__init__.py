"""State of TF 1.15 to 2.15, restored into Keras 3 models and optimizers.

| module                                       | subject |
| -------------------------------------------- | ------- |
| models                                       | `load_model`, `load_weights` |
| checkpoints                                  | `restore` |
| building, differences, output_names, reasons | the model, built from old configs |
| from_graph                                   | models around a graph, without their classes |
| keras_layers, graph_flags                    | layers for operations, flags of layers |
| claims, limits                               | how much an untrusted file may allocate |
| object_matching, v1_saver                    | which tensor of a checkpoint is which variable |
| hdf5, keras_archives, archive_places, shards | the same for the other formats |
| variable_order, cudnn_weights                | order and layout of old weights |
| optimizer_state, preprocessing_state         | slots, counters, vocabularies |
| comparing, comparison, expecting             | predictions, beside a graph or a recording |
| plan                                         | all assignments, checked before any is made |
"""
