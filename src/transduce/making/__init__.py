"""Files in, a trained run and an account of it out: `transduce make`."""
