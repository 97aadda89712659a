"""Tests how rust.py reads source, and which circles, floors and names rooms.py finds wrong."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rooms import paragraphs, wrong  # noqa: E402
from rust import Crate, tokens  # noqa: E402


def edges(**files):
    """Returns the edges between files of a crate (`a__b` is a/b.rs), as `user -> used`."""
    read = reader(files)
    found = Crate(Path("lib.rs"), read).edges()
    return sorted(f"{short(user)} -> {short(used)}" for user, used in found)


def short(file):
    return str(file).removesuffix(".rs")


def reader(files):
    sources = {Path(name.replace("__", "/") + ".rs"): text for name, text in files.items()}
    return lambda file: sources[file]


def faults(**files):
    return [text.split("\n")[0] for text in wrong(Path("lib.rs"), reader(files))]


class Reading(unittest.TestCase):
    def test_comments_texts_and_lifetimes_are_no_names(self):
        source = """/* a /* b */ c */ x // y
            "z\\"" r#"w"v"# 'u' '\\'' b"t" &'life s"""
        self.assertEqual([one for one in tokens(source) if one[0].isalpha()], ["x", "s"])

    def test_paths_lead_to_the_file_that_defines(self):
        self.assertEqual(
            edges(
                lib="mod a; mod b;",
                a="pub mod deep; pub use deep::{Inner, other as renamed};",
                a__deep="pub struct Inner; pub fn other() {}",
                b="use crate::a::Inner; fn f() { super::a::renamed(); }",
            ),
            ["b -> a/deep"],
        )

    def test_every_way_to_write_a_path_is_read(self):
        thing = "pub struct Thing; pub fn make() {}"
        for user in [
            "use crate::a::{self, Thing};  fn f() { a::make(); }",
            "use crate::{a::{Thing as Other}};",
            "use super::a::*; fn f(x: Thing) {}",
            "fn f() -> crate::a::Thing { panic!() }",
            "fn f() { if true { use crate::a; a::make() } }",
            "use crate::a as b; struct S { x: Vec<b::Thing> }",
            "mod inner { use super::super::a::Thing; }",
            "macro_rules! m { () => { $crate::a::make() } }",
            "impl S { fn f() { for x in [crate::a::make()] {} } }",
        ]:
            self.assertEqual(edges(lib="mod a; mod b;", a=thing, b=user), ["b -> a"], user)

    def test_fields_methods_and_test_code_use_nothing(self):
        for user in [
            "struct S { make: u8 } fn f(s: S) { s.make; s.make() }",
            "#[cfg(test)] mod tests { use crate::a::make; }",
            "#[cfg(all(test, unix))] use crate::a::make;",
            "impl S { #[cfg(test)] fn f<A, B>() { crate::a::make() } fn g() {} }",
        ]:
            self.assertEqual(edges(lib="mod a; mod b;", a="pub fn make() {}", b=user), [], user)
        kept = "#[cfg(not(test))] fn f() { crate::a::make() }"
        self.assertEqual(edges(lib="mod a; mod b;", a="pub fn make() {}", b=kept), ["b -> a"])

    def test_a_reexport_uses_nothing_and_macros_are_found(self):
        self.assertEqual(
            edges(
                lib="#[macro_use] mod macros; mod a; pub use a::A;",
                macros="macro_rules! row { () => {} }",
                a="row! {} pub struct A;",
            ),
            ["a -> macros"],
        )


class Rules(unittest.TestCase):
    def test_a_parent_and_one_child_may_need_each_other(self):
        parent = "mod b; pub struct A; fn f() { b::g(); }"
        child = "use super::A; pub fn g() {}"
        self.assertEqual(faults(lib="mod a;", a=parent, a__b=child), [])
        two = "mod b; mod c; pub struct A; fn f() { b::g(); c::g(); }"
        self.assertEqual(
            faults(lib="mod a;", a=two, a__b=child, a__c=child),
            ["circle of files: a/b.rs, a/c.rs, a.rs"],
        )

    def test_siblings_and_their_folders_have_an_order(self):
        self.assertEqual(
            faults(
                lib="mod a; mod b;",
                a="pub mod x; pub mod y;",
                b="pub mod z;",
                a__x="use crate::b::z::Z; pub struct X;",
                a__y="pub struct Y;",
                b__z="use crate::a::y::Y; pub struct Z;",
            ),
            ["circle of modules in crate: a, b"],
        )

    def test_modules_use_those_declared_above_them(self):
        files = {"a": "pub struct A;", "b": "use crate::a::A;"}
        self.assertEqual(faults(lib="mod a;\n\nmod b;", **files), [])
        self.assertEqual(faults(lib="mod a;\nmod b;", **files), [])
        self.assertEqual(len(faults(lib="mod b;\n\nmod a;", **files)), 1)
        self.assertEqual(len(faults(lib="mod b;\npub struct A;", b="use crate::A;")), 1)

    def test_paragraphs_are_read_without_tests(self):
        source = "//! Docs.\n\npub mod a;\nmod b;\n\n#[cfg(test)]\nmod t;\n// c\npub(crate) mod d;\n"
        self.assertEqual(paragraphs(source), [["a", "b"], ["d"]])

    def test_two_types_of_one_name_are_wrong(self):
        a, b = "pub struct Part { x: u8 }", "mod n { type Part = u8; } fn f() { struct Own; }"
        self.assertEqual(
            faults(lib="mod a; mod b; struct Own;", a=a, b=b),
            ["2 types are named Part: a, b::n"],
        )


if __name__ == "__main__":
    unittest.main()
