"""samples.py TREE SCRATCH LIBRARY COMPILER [FLAG...]: every piece of C in a document or in the comment of a public header
compiles without a warning and runs. docs/cookbook.md has a test of its own, which asks more of it.

A piece with a main is a program. Any other stands in a function that is given `planned` (over a plan that it may
record), `a` (an allocator), `n` (a size) and `stream`; step(a) and work(a) are functions that allocate and free. A piece
that registers something stands at file level. A piece in a binding's README is compiled with the binding's header and what
GIVEN says the program has, and not run: the runtime is not at hand."""
import os
import re
import subprocess
import sys

from reading import blocks, documents, header_blocks, read

PRELUDE = """#include <berth/berth.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((unused)) static void work(berth_allocator *a)
{
    float *x = BERTH_NEW(a, float, 1000);
    berth_deallocate(a, x, 0, NULL);
}
__attribute__((unused)) static bool step(berth_allocator *a)
{
    work(a);
    return false;
}
__attribute__((unused)) static berth_status my_pool_factory(void *context, berth_allocator **out)
{
    (void)context;
    return berth_cpu_allocator_create(NULL, out);
}
"""

MAIN = """
int main(void)
{
    berth_stream *stream = NULL;
    berth_plan *plan = NULL;
    berth_allocator *planned = NULL;
    if (berth_stream_create(berth_device_cpu(), &stream) || berth_plan_create(&plan) ||
        berth_planned_create(berth_cpu_allocator(), plan, &planned))
        return 1;
    sample(planned, berth_cpu_allocator(), 1000, stream);
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_stream_destroy(stream);
}
"""

GIVEN = {
    "ggml": "berth_allocator *allocator; struct ggml_cgraph *cgraph; struct ggml_backend_buffer_type *type; berth_ggml_graph *graph;",
    "onnxruntime": "const struct OrtApiBase *base; berth_allocator *allocator; struct OrtEnv *env; struct OrtSessionOptions *session_options;",
    "tflite": "struct TfLiteInterpreter *interpreter;",
}


def looks_like_c(lines):
    return any(re.search(r"\b(berth_\w+|BERTH_[A-Z_]+)\s*\(.*\)\s*[;{)]|\bBERTH_\w+_INIT;", line) for line in lines) or any(
        re.match(r"^\s*BERTH_REGISTER\(", line) for line in lines)


def collect(tree):
    """(place, lines) of every sample."""
    samples = []
    for path in documents(tree):
        if path == os.path.join("docs", "cookbook.md"):
            continue
        for line, language, lines in blocks(read(tree, path)):
            if language == "c":
                samples.append((f"{path}:{line}", lines))
            elif looks_like_c(lines):
                sys.exit(f"{path}:{line}: this looks like C: put it between ```c and ```, so that it is compiled")
    for path in documents(os.path.join(tree, "include"), ".h"):
        path = os.path.join("include", path)
        samples += [(f"{path}:{line}", lines) for line, lines in header_blocks(read(tree, path)) if looks_like_c(lines)]
    return samples


def binding_of(place):
    """The binding whose README it stands in, or ''."""
    parts = place.split(os.sep)
    return parts[1] if parts[0] == "bindings" else ""


def inside_of(binding, lines):
    text = "\n".join(lines) + "\n"
    given = "".join(f"extern {words};\n" for words in GIVEN[binding].split("; ") for words in [words.rstrip(";")])
    return f'#include <berth/berth.h>\n#include "berth_{binding}.h"\n{given}void sample(void);\nvoid sample(void)\n{{\n{text}}}\n'


def program_of(lines):
    text = "\n".join(lines) + "\n"
    if re.search(r"\bmain\(", text):
        return text
    parameters = "berth_allocator *planned, berth_allocator *a, size_t n, berth_stream *stream"
    unused = "    (void)planned, (void)a, (void)n, (void)stream;\n"
    if text.startswith("BERTH_REGISTER("):
        return f"{PRELUDE}{text}static void sample({parameters})\n{{\n{unused}}}\n{MAIN}"
    return f"{PRELUDE}static void sample({parameters})\n{{\n{unused}    {{\n{text}    }}\n}}\n{MAIN}"


def main():
    tree, work, library, compiler = sys.argv[1:5]
    flags = sys.argv[5:]
    os.makedirs(work, exist_ok=True)
    for name in ("BERTH_CONF", "BERTH_LOG", "BERTH_SHOW_STATS"):
        os.environ.pop(name, None)
    samples, bad = collect(tree), 0
    for number, (place, lines) in enumerate(samples, 1):
        source, program = os.path.join(work, f"{number:02}.c"), os.path.join(work, f"{number:02}")
        binding = binding_of(place)
        with open(source, "w", encoding="utf-8") as file:
            file.write(f"/* {place} */\n{inside_of(binding, lines) if binding else program_of(lines)}")
        command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-misleading-indentation", "-Werror", *flags, "-I",
                   os.path.join(tree, "include"), source]
        if binding:
            command += ["-fsyntax-only", "-I", os.path.join(tree, "bindings", binding)]
        else:
            command += [library, "-lpthread", "-ldl", "-lm", "-o", program]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if binding and built.returncode == 0:
            continue
        ran = built.returncode == 0 and subprocess.run([program], cwd=work, capture_output=True, text=True, timeout=60, check=False)
        if not ran or ran.returncode != 0:
            print(f"{place}: {'it does not compile' if not ran else 'it fails'}:\n{built.stderr if not ran else ran.stdout + ran.stderr}",
                  file=sys.stderr)
            bad = 1
    print(f"{len(samples)} samples")
    if len(samples) < 7:
        sys.exit("that cannot be all of them")
    sys.exit(bad)


main()
