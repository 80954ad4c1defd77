"""Second implementations, which exist for speed or memory alone, each beside the plain one that it is tested against.

| file | what is fast | its plain oracle |
| --- | --- | --- |
| `kernels` | attention stays fused, and is read some queries at a time | `tape.explicit.explicit_attention` |
| `double_backward` | its gradient in a training step, differentiated without a matrix | the same |
| `zplus` | the z+ rule of a dense layer, in place | `rules.alpha_beta` |
| `structure` | what follows from a tape's structure, remembered | looked for anew |
| `walk` | a model's modules, walked over once a call | `model.named_modules()` |

With `LRPTRAIN_PLAIN=1`, or inside of `plainly()`, none of them runs, nothing is left out of a tape to be made again,
and methods that need no tape get one; see `switch`. The gradient form of `attnlrp` and `cp_lrp` is an option of these
methods (`form="explicit"`), and a model that cannot be recorded has no other pass than one without a tape.
"""
