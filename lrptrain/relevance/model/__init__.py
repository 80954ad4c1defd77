"""The model as the engine finds it: its arguments, precision and state, which are as before afterwards."""
