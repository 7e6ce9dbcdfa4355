// Which operator of libtorch runs on a thread: what tensors are for, where no Python frame tells it (autograd's threads).
#pragma once

// From now on, or no longer. libtorch then calls us at the begin and end of every operator. One thread at a time.
void operators_watch();
void operators_unwatch();

// The outermost operator that runs on the calling thread ("aten::conv2d", "ConvolutionBackward0"): inner ones are most
// often aten::empty. nullptr: none. Valid until the operator ends.
const char *operators_here();
