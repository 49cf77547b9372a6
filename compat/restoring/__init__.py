"""State of TF 1.15 to 2.15, restored into Keras 3 models and optimizers.

| module                                       | subject |
| -------------------------------------------- | ------- |
| models                                       | `load_model`, `load_weights` |
| checkpoints                                  | `restore` |
| building, differences, output_names, reasons | the model, built from old configs |
| keras_layers, graph_flags                    | layers for operations, flags of layers |
| claims, limits                               | how much an untrusted file may allocate |
| object_matching, v1_saver                    | which tensor of a checkpoint is which variable |
| hdf5, keras_archives, archive_places, shards | the same for the other formats |
| variable_order, cudnn_weights                | order and layout of old weights |
| optimizer_state, preprocessing_state         | slots, counters, vocabularies |
| comparing, comparison                        | predictions, beside the graph in a SavedModel |
| plan                                         | all assignments, checked before any is made |
"""
