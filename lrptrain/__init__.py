"""lrptrain: what is my model looking at, and how do I make it look at the right thing?"""
