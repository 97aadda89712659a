#!/usr/bin/env python3
"""Prints a C program with as many functions as asked for, as work for a compiler."""

import sys

BODY = """\
static int f{i}(struct s *x, int n) {{
  int t = {i};
  for (int i = 0; i < n; i++) {{
    x->a[i & 7] += t * {a} + (int)x->d;
    if (x->a[i & 7] > {b}) {{ x->d *= 1.5; t ^= x->a[(i + {c}) & 7]; }}
    else t += (int)strlen(x->p) + {d};
  }}
  return t;
}}"""

count = int(sys.argv[1])
print("#include <stdio.h>\n#include <string.h>\nstruct s { int a[8]; double d; char *p; };")
for i in range(count):
    print(BODY.format(i=i, a=i % 17 + 1, b=i * 3, c=i % 5, d=i % 7))
print('int main(void) { struct s x; memset(&x, 0, sizeof x); x.p = "abc"; int t = 0;')
for i in range(count):
    print(f"  t += f{i}(&x, {i % 9});")
print('  printf("%d\\n", t); return 0; }')
