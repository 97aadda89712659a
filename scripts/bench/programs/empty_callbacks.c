/* Callbacks for PyTorch that do nothing, so the cost that they add is PyTorch's own part. */
void **begin(void **context, const void *function);
void **begin(void **context, const void *function) {
    (void)function;
    *context = 0;
    return context;
}

void end(const void *function, void *context);
void end(const void *function, void *context) {
    (void)function;
    (void)context;
}
