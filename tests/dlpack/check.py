"""DLPack against the real NumPy and, where asked for, PyTorch (both of Debian speak the form without versions):
memory of Berth's seen as their arrays, and their arrays as Berth's buffers, without a copy and freed once.

    check.py numpy|torch LIBBERTH.SO
"""
import ctypes as c
import gc
import sys

library = c.CDLL(sys.argv[2])
library.berth_cpu_allocator.restype = c.c_void_p
library.berth_buffer_data.restype = c.c_void_p
library.berth_buffer_data.argtypes = library.berth_buffer_release.argtypes = [c.c_void_p]
library.berth_buffer_size.restype = c.c_size_t
library.berth_buffer_size.argtypes = [c.c_void_p]
library.berth_pool_create.argtypes = [c.c_void_p, c.POINTER(c.c_void_p)]
library.berth_buffer_create.argtypes = [c.c_void_p, c.c_size_t, c.c_size_t, c.c_bool, c.POINTER(c.c_void_p)]
library.berth_dlpack_export_unversioned.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p, c.POINTER(c.c_void_p)]
library.berth_dlpack_import_unversioned.argtypes = [c.c_void_p, c.c_void_p]
library.berth_stats_get.argtypes = [c.c_void_p, c.c_void_p]

DIMS = 32


class Type(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("buffer", c.c_void_p), ("offset_bytes", c.c_uint64), ("type", Type),
                ("dims", c.c_int32), ("flags", c.c_uint32), ("has_strides", c.c_bool), ("shape", c.c_int64 * DIMS),
                ("strides", c.c_int64 * DIMS)]


class Stats(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("num_allocs", c.c_uint64), ("bytes_in_use", c.c_uint64)] + \
        [(f"rest{i}", c.c_uint64) for i in range(10)]


python = c.pythonapi
python.PyCapsule_New.restype = c.py_object
python.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
python.PyCapsule_GetPointer.restype = c.c_void_p
python.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
python.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]

NAME, USED = b"dltensor", b"used_dltensor"  # capsules keep them by reference


def call(status):
    assert status == 0, (status, "a call of Berth failed")


class Lender:
    """What a consumer asks for a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        out = c.c_void_p()
        call(library.berth_dlpack_export_unversioned(c.byref(self.tensor), None, None, c.byref(out)))
        return python.PyCapsule_New(out, NAME, None)


def in_use(pool):
    stats = Stats(struct_size=c.sizeof(Stats))
    call(library.berth_stats_get(pool, c.byref(stats)))
    return stats.bytes_in_use


def tensor_of(buffer, type_, shape, strides=None, offset=0):
    t = Tensor(struct_size=c.sizeof(Tensor), buffer=buffer, offset_bytes=offset, type=type_, dims=len(shape))
    t.shape[:len(shape)] = shape
    if strides is not None:
        t.has_strides = True
        t.strides[:len(strides)] = strides
    return t


def out_of_berth(numpy, from_dlpack, names):
    pool = c.c_void_p()
    call(library.berth_pool_create(None, c.byref(pool)))
    for name, code in names:
        size = numpy.dtype(name).itemsize
        buffer = c.c_void_p()
        call(library.berth_buffer_create(pool, 24 * size + 64, 64, False, c.byref(buffer)))
        address = library.berth_buffer_data(buffer)
        own = numpy.frombuffer((c.c_char * (24 * size + 64)).from_address(address), dtype=name, count=24)
        own[:] = numpy.arange(24).astype(name)
        type_ = Type(code, size * 8, 1)
        cases = [((4, 6), None, 0, lambda a: a.reshape(4, 6)),
                 ((6, 4), (1, 6), 0, lambda a: a.reshape(4, 6).T),
                 ((3, 2), (6, 3), size, lambda a: a.reshape(4, 6)[:3, 1::3]),
                 ((24,), None, 0, lambda a: a),
                 ((), None, 5 * size, lambda a: a[5].reshape(()))]
        for shape, strides, offset, expected in cases:
            seen = from_dlpack(Lender(tensor_of(buffer, type_, shape, strides, offset)))
            assert tuple(seen.shape) == shape, (name, shape, tuple(seen.shape))
            assert (numpy.asarray(seen) == expected(own)).all(), (name, shape)
            if strides is None and shape:
                first = (0,) * len(shape)
                own[0] = 1 - own[0]  # no copy: a write is seen
                assert numpy.asarray(seen)[first] == own[0], (name, shape)
        # The consumer's is the last reference.
        kept = from_dlpack(Lender(tensor_of(buffer, type_, (24,))))
        library.berth_buffer_release(buffer)
        assert in_use(pool) > 0 and (numpy.asarray(kept) == own).all()
        del seen, kept
        gc.collect()
        assert in_use(pool) == 0, (name, in_use(pool))
    library.berth_allocator_release(pool)


def into_berth(numpy, make, names):
    """`make(array)` is the producer's own; it is freed when the buffer is released."""
    for name, code in names:
        array = numpy.arange(24).astype(name).reshape(2, 3, 4)
        for view in (array, array.transpose(2, 0, 1), array[:, 1:, ::2]):
            produced = make(view)
            capsule = produced.__dlpack__()
            managed = python.PyCapsule_GetPointer(capsule, NAME)
            t = Tensor(struct_size=c.sizeof(Tensor))
            call(library.berth_dlpack_import_unversioned(managed, c.byref(t)))
            python.PyCapsule_SetName(capsule, USED)
            assert (t.type.code, t.type.bits, t.type.lanes) == (code, view.itemsize * 8, 1), name
            assert tuple(t.shape[:t.dims]) == view.shape
            start, size = library.berth_buffer_data(t.buffer), library.berth_buffer_size(t.buffer)
            memory = numpy.frombuffer((c.c_char * size).from_address(start), dtype=numpy.uint8)
            strides = [s * view.itemsize for s in t.strides[:t.dims]]
            again = numpy.ndarray(view.shape, view.dtype, memory, t.offset_bytes, strides)
            assert (again == view).all(), (name, view.shape)
            before = sys.getrefcount(produced)
            del capsule
            library.berth_buffer_release(t.buffer)
            # NumPy's capsule holds the array itself; PyTorch's holds its storage, which Python does not count.
            assert sys.getrefcount(produced) <= before


def main():
    import numpy
    real = [("int8", 0), ("int32", 0), ("int64", 0), ("uint8", 1), ("float32", 2), ("float64", 2), ("complex64", 5)]
    library.berth_allocator_release.argtypes = [c.c_void_p]
    if sys.argv[1] == "numpy":
        out_of_berth(numpy, numpy.from_dlpack, real + [("uint16", 1), ("float16", 2)])
        into_berth(numpy, lambda a: a, real)
        # A producer's array goes when Berth lets go of it.
        array = numpy.zeros(1000)
        before = sys.getrefcount(array)
        capsule = array.__dlpack__()
        t = Tensor(struct_size=c.sizeof(Tensor))
        call(library.berth_dlpack_import_unversioned(python.PyCapsule_GetPointer(capsule, NAME), c.byref(t)))
        python.PyCapsule_SetName(capsule, USED)
        del capsule
        assert sys.getrefcount(array) == before + 1
        library.berth_buffer_release(t.buffer)
        assert sys.getrefcount(array) == before
        print("numpy", numpy.__version__)
    else:
        import torch
        out_of_berth(numpy, torch.from_dlpack, real)
        into_berth(numpy, lambda a: torch.from_numpy(a), real)
        print("torch", torch.__version__)


main()
