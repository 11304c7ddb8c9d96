"""From a trained model to the best or a sampled output."""
