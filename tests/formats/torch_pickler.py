"""Pickles as the pickler in PyTorch's C++ writes them: protocol 2, all items of a list appended at once, and what is meant again
kept behind its contents.

    torch_pickler.py EVENTS FILE     a snapshot of so many events of one block"""
import struct
import sys


class Pickler:
    def __init__(self, file):
        self.file, self.kept, self.texts, self.held, self.next = file, {}, {}, [], 0

    def keep(self):
        number, self.next = self.next, self.next + 1
        self.file.write(b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number))
        return number

    def take(self, number):
        self.file.write(b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number))

    def number(self, n):
        if 0 <= n < 256:
            self.file.write(b"K" + bytes([n]))
        elif 0 <= n < 65536:
            self.file.write(b"M" + struct.pack("<H", n))
        elif -2 ** 31 <= n < 2 ** 31:
            self.file.write(b"J" + struct.pack("<i", n))
        else:
            self.file.write(b"\x8a\x08" + struct.pack("<q", n))

    def text(self, text):
        if text in self.texts:
            self.take(self.texts[text])
            return
        self.file.write(b"X" + struct.pack("<I", len(text.encode())) + text.encode())
        self.texts[text] = self.keep()

    def collection(self, value):
        if id(value) in self.kept:
            self.take(self.kept[id(value)])
            return
        if isinstance(value, list):
            self.file.write(b"](")
            for item in value:
                self.push(item)
            self.file.write(b"e")
        else:
            self.file.write(b"}(")
            for key, item in value.items():
                self.push(key)
                self.push(item)
            self.file.write(b"u")
        self.kept[id(value)] = self.keep()
        self.held.append(value)

    def push(self, value):
        if isinstance(value, bool):
            self.file.write(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.number(value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.push(item)
            self.file.write(bytes([0x84 + len(value)]))
        else:
            self.collection(value)


def dump(value, file):
    file.write(b"\x80\2")
    Pickler(file).push(value)
    file.write(b".")


def main():
    frames = [{"filename": "m.py", "line": 1, "name": "main"}]
    trace = [{"action": ("alloc", "free_completed")[i % 2], "addr": 4096, "size": 512, "stream": 0, "time_us": i, "frames": frames}
             for i in range(int(sys.argv[1]))]
    with open(sys.argv[2], "wb") as file:
        dump({"segments": [], "device_traces": [trace]}, file)


if __name__ == "__main__":
    main()
