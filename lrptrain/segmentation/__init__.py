"""From image labels to masks: seeds, refinement, pseudo-masks, and a segmenter trained on them."""
