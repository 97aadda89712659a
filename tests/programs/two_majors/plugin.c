/* Was linked against one major. */
extern int cudaDeviceSynchronize(void);
int ask(void) { return cudaDeviceSynchronize(); }
