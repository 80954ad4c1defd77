"""The methods that are tried, and the refusals in few words."""

METHODS = (
    "attnlrp", "gamma_lrp", "epsilon_lrp", "lrp", "input_x_gradient", "integrated_gradients", "rollout",
    "raw_attention", "generic_attention", "transformer_attribution", "gradcam",
)  # fmt: skip
ATTENTION = ("rollout", "raw_attention", "generic_attention", "transformer_attribution", "gradcam")
# Tasks whose models share their trunk with those of another task are asked less.
FEWER = ("attnlrp", "input_x_gradient", "rollout", "generic_attention")
OK = "ok"
# By pattern, what the table says.
REASONS: tuple[tuple[str, str], ...] = (
    (r"refused: (\w+) in module .* has no propagation rule", "no rule: `{0}`"),
    (r"refused: (\w+) in module .* divides by an activation", "division by an activation"),
    (r"refused: (\w+) in module .* mixes the samples", "`{0}` mixes samples"),
    (r"refused: (\w+) in module .* made a tensor outside", "not torch's functions: `{0}`"),
    (r"different lengths", "reduced or merged tokens"),
    (r"tokens at a time, not the whole sequence", "windows"),
    (r"no self-attention that the tape can see", "no square attention"),
    (r"no patch convolution", "no patch grid found"),
    (r"patches cannot be found among", "patches not found among tokens"),
    (r"the text has \d+ positions but", "input is not the token sequence"),
    (r"no states \[batch", "no token states found"),
    (r"must return logits", "output is not [batch, classes]"),
    (r"gradcam finds no token states", "no projected token states"),
    (r"never looks up an embedding", "ids never looked up"),
    (r"are NaN or infinite", "not finite, refused"),
    (r"encoder-decoder|two sequences|queries and keys", "encoder and decoder"),
    (r"[Ll]inear attention|state-space|not by attention", "tokens mixed otherwise"),
)
