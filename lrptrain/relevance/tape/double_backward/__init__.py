"""Operations whose gradient can be differentiated in a few passes over memory: losses on maps take second derivatives.

torch writes a second derivative out in many small operations, each with fresh memory, and keeps what they make. Here
each has one function, which makes what it needs again, in parts that fit into a cache.
"""
