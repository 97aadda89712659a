"""Tests that signatures.py finds the known faults of a header, and elf.py the known calls of a file."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import signatures  # noqa: E402
from elf import Elf  # noqa: E402
from prototypes import Headers, parameters, places  # noqa: E402

HEADER = """
typedef struct { unsigned x, y, z; } dim3;
typedef struct stream *cudaStream_t;
typedef struct { char bytes[64]; } handle;
enum { FIRST = 1, SECOND = 7 };
int launch(const void *func, dim3 grid, dim3 block, void **args, unsigned long shared, cudaStream_t stream);
int unnamed(void *, const void *, unsigned int);
int open_handle(void **at, handle given, unsigned flags);
int scaled(cudaStream_t stream, float by);
int many(const int counts[], int (*call)(int, int), int a, int b, int c, int d, long e);
int nothing(void);
"""


class Signatures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        Path(self.folder.name, "known.h").write_text(HEADER)
        self.headers = Headers([self.folder.name], ["known.h"])

    def tearDown(self):
        self.headers.close()
        self.folder.cleanup()

    def words(self, *names):
        found = places(self.headers, {name: parameters(self.headers.text, name) for name in names})
        return [found[name][0] for name in names]

    def test_arguments_lie_where_the_compiler_puts_them(self):
        names = ["launch", "unnamed", "open_handle", "many", "nothing"]
        self.assertEqual(self.words(*names), [2, 0, 8, 1, 0])

    def test_the_words_are_those_that_a_compiler_reads(self):
        # Takes the last argument's place from the code that the compiler makes.
        source = HEADER + "long read_many(const int *a, void *b, int c, int d, int e, int f, long g) { return g; }"
        command = ["gcc", "-O2", "-S", "-x", "c", "-", "-o", "-"]
        code = subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn("8(%rsp), %rax", code)

    def faults(self, table):
        return list(signatures.wrong_hooks(self.headers, "", table, set()))

    def test_a_right_table_has_no_fault(self):
        self.assertEqual(self.faults({"launch": ("Runtime", 2, "launches(0, Stack(1))")}), [])

    def test_wrong_words_types_and_numbers_are_found(self):
        self.assertEqual(len(self.faults({"launch": ("Runtime", 1, "launches(0, Stack(1))")})), 1)
        self.assertEqual(len(self.faults({"launch": ("Runtime", 2, "launches(0, Stack(0))")})), 1)
        self.assertEqual(len(self.faults({"launch": ("Runtime", 2, "launches(0, Stack(2))")})), 1)
        self.assertEqual(len(self.faults({"scaled": ("Runtime", 0, "plain(0)")})), 1)
        numbers = [("FIRST", 1, "here"), ("SECOND", 2, "here"), ("THIRD", 3, "here")]
        self.assertEqual(len(list(signatures.wrong_numbers(self.headers, numbers, set()))), 1)


class CallSites(unittest.TestCase):
    def test_each_call_of_an_import_counts_however_it_is_made(self):
        source = """
            extern int cudaA(int), cudaB(int), cudaC(int);
            int two(int x) { return cudaA(x) + cudaA(x + 1); }
            int last(int x) { return cudaB(x); }
            void *address(void) { return cudaC; }
        """
        with tempfile.TemporaryDirectory() as folder:
            for option in ["-fplt", "-fno-plt", "-fcf-protection=full"]:
                library = f"{folder}/library.so"
                command = ["gcc", "-O2", "-shared", "-fPIC", option, "-x", "c", "-", "-o", library]
                subprocess.run(command, input=source, text=True, check=True)
                file = Elf(library)
                imports, _ = file.imports()
                found = file.calls(file.slots(imports))
                self.assertEqual([found[f"cuda{letter}"] for letter in "ABC"], [2, 1, 0], option)


if __name__ == "__main__":
    unittest.main()
