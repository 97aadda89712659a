/* Runs a command that may not see where the kernel's functions lie, as most users may not.

   Proves: a report without their names is readable, and names the reason. */
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    /* An exec as root gives back the capabilities that are left in the bounding set. */
    if (argc < 2 || prctl(PR_CAPBSET_DROP, CAP_SYSLOG, 0, 0, 0)) {
        perror("no_kernel_names");
        return 2;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
