"""Takes nodes out of service, and returns them.

decision   which nodes
steps      shown first, asked for, then done and noted
"""
