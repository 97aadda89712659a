/* A Python module that is linked with the stand-in and runs steps of it when it is imported, in any
 * interpreter. It needs none of Python's headers, because it only uses declarations of the stable ABI. */
int stand_in(const char *what);
void *PyModuleDef_Init(void *definition);
void *PyInit_stand_in_module(void);

static int run(void *module) {
    (void)module;
    return stand_in("");
}

static struct {
    int slot;
    void *value;
} slots[] = {{2 /* Py_mod_exec */, (void *)run}, {0, 0}};

static struct {
    long references;
    void *type, *init;
    long index;
    void *copy;
    const char *name, *text;
    long size;
    void *methods, *slots, *traverse, *clear, *free;
} definition = {.references = 1, .name = "stand_in_module", .slots = slots};

void *PyInit_stand_in_module(void) { return PyModuleDef_Init(&definition); }
