"""Writes one large C file, the same one every time: about 50,000 lines of structs, switches, loops and calls. One
function in eight is external and calls external ones; the others are static and unused, like most functions that
headers define."""

import random

LINES = 50_000
EXTERNAL = 8
OPERATORS = ("+", "-", "*", "^", "&", "|")


def function(number, draw):
    kind = draw.randrange(4)
    struct = f"struct s{draw.randrange(max(1, number // 8 + 1))}"
    external = number % EXTERNAL == 0
    head = f"{'' if external else 'static '}int f{number}({struct} *p, int n) {{"
    callee = draw.randrange(number) if number else None
    if callee is not None and external:
        callee -= callee % EXTERNAL
    call = f"f{callee}((void *)p, n - 1)" if callee is not None else "n"
    operator = [draw.choice(OPERATORS) for _ in range(8)]
    if kind == 0:
        cases = [
            line
            for case in range(draw.randrange(6, 14))
            for line in (f"    case {case * draw.randrange(1, 3) * 16 + case}:", f"        p->b {operator[case % 8]}= n + {case};", "        break;")
        ]
        body = ["    switch (n) {", *cases, "    default:", f"        p->a = {call};", "    }", "    return p->a + p->b;"]
    elif kind == 1:
        body = [
            "    int sum = 0;",
            f"    for (int i = 0; i < (n & {draw.randrange(7, 63)}); i++) {{",
            f"        sum {operator[0]}= p->v[i & 7] {operator[1]} i;",
            f"        if (sum > {draw.randrange(1000)})",
            f"            p->v[i & 7] = sum {operator[2]} p->a;",
            "    }",
            "    return sum;",
        ]
    elif kind == 2:
        body = [
            f"    if (n < {draw.randrange(50)} && p->next)",
            f"        return {call} {operator[0]} p->a;",
            f"    p->c = (double)n * {draw.random():.4f} + p->c;",
            f"    return p->c > {draw.randrange(100)} ? p->a : p->b;",
        ]
    else:
        body = [
            "    const char *t = p->name;",
            f"    unsigned h = {draw.randrange(1 << 30)}u;",
            "    while (t && *t)",
            f"        h = (h {operator[0]} (unsigned char)*t++) * {draw.randrange(3, 1 << 16) | 1}u;",
            f"    p->a {operator[1]}= (int)h;",
            f"    return {call};",
        ]
    return [head, *body, "}", ""]


def struct(number):
    return [f"struct s{number} {{", "    int a, b;", "    double c;", "    int v[8];", "    const char *name;", f"    struct s{number} *next;", "};", ""]


def write(path):
    draw = random.Random(1)
    lines, number = [], 0
    while len(lines) < LINES:
        if number % 8 == 0:
            lines += struct(number // 8)
        lines += function(number, draw)
        number += 1
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")
