"""AttnLRP as one ordinary gradient of a forward pass in which a few calls have another backward."""
