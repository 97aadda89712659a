/* Stands for one major of CUDA's runtime: returns which. */
int cudaDeviceSynchronize(void) { return MAJOR; }
