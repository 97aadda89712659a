// A program that is linked with the stand-in, like C++ programs with LibTorch.
extern "C" int stand_in(const char *);

int main(int argc, char **argv) { return stand_in(argc > 1 ? argv[1] : ""); }
