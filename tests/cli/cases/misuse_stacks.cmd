berth record --stacks 65 -- true
