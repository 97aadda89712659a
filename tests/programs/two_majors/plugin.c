/* A plugin that is linked against one major version. */
extern int cudaDeviceSynchronize(void);
int ask(void) { return cudaDeviceSynchronize(); }
