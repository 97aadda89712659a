/* Runs a command that can't read the addresses of the kernel's functions, like most users.

   Proves: without the kernel's names, a report has one function for the kernel, and the reason. */
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    /* An exec as root restores the capabilities that are still in the bounding set. */
    if (argc < 2 || prctl(PR_CAPBSET_DROP, CAP_SYSLOG, 0, 0, 0)) {
        perror("no_kernel_names");
        return 2;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
