// SPDX-License-Identifier: Apache-2.0
// The first process of a pod: it waits, and reaps what is orphaned to it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal)
{
	(void)signal;
	while (waitpid(-1, 0, WNOHANG) > 0)
		;
}

int main(void)
{
	signal(SIGINT, end);
	signal(SIGTERM, end);
	signal(SIGCHLD, reap);
	for (;;)
		pause();
}
