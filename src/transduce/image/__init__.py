"""Images of the usual formats to tensors, with light augmentation."""
