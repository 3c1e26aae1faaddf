/* Every function, of an agent that knows what it is to be asked (tests/agent.rs). */

#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The agent's answers. */
#define FIRST ((void *)0x100000000000)
#define WHOLE ((size_t)8192)

static sigjmp_buf back;

static void on_bus(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

/* Whether reading at `address` is a SIGBUS. */
static int is_bus(volatile char *address)
{
    struct sigaction action, before;
    volatile int bus = 0;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_bus;
    CHECK(sigaction(SIGBUS, &action, &before) == 0);
    if (sigsetjmp(back, 1) == 0)
        (void)*address;
    else
        bus = 1;
    CHECK(sigaction(SIGBUS, &before, NULL) == 0);
    return bus;
}

/* Every signal is blocked for the thread that the library has. */
static void library_thread_takes_no_signal(void)
{
    char path[300], line[256];
    unsigned long long blocked = 0;
    int others = 0;
    struct dirent *thread;
    DIR *threads = opendir("/proc/self/task");

    CHECK(threads != NULL);
    while ((thread = readdir(threads)) != NULL) {
        FILE *file;

        if (thread->d_name[0] == '.' || atoi(thread->d_name) == (int)getpid())
            continue;
        others++;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", thread->d_name);
        file = fopen(path, "r");
        CHECK(file != NULL);
        while (fgets(line, sizeof line, file) != NULL) {
            if (strncmp(line, "SigBlk:", 7) == 0)
                blocked = strtoull(line + 7, NULL, 16);
        }
        fclose(file);
    }
    closedir(threads);
    CHECK(others == 1);
    CHECK(blocked & (1ull << (SIGTERM - 1)));
    CHECK(blocked & (1ull << (SIGCHLD - 1)));
}

/* A child is not attached, and its calls do not reach the agent in its parent's name. */
static void child(struct mind *mind)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        FAILS(mind_map(mind, 4096, MIND_ACCESS_WRITE), NULL, ENOTCONN, "is a child of process");
        FAILS(mind_detach(mind), -1, ENOTCONN, "is a child of process");
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    size_t whole = 1;
    struct mind_options options = MIND_OPTIONS_INIT;
    struct mind *mind;

    options.on_loss = MIND_ON_LOSS_FAIL;
    mind = mind_attach("weather", &options);
    CHECK(mind != NULL);
    CHECK(mind_blade(mind) == 3);
    CHECK(mind_domain(mind) == 7);
    FAILS(mind_attach("weather", NULL), NULL, EBUSY, "attached already");
    library_thread_takes_no_signal();
    child(mind);

    CHECK(mind_map(mind, 5000, MIND_ACCESS_WRITE) == FIRST);
    CHECK(mind_open_area(mind, "r\xc3\xa4nks", 0, MIND_ACCESS_READ, MIND_OPEN_OR_CREATE, &whole) == FIRST);
    CHECK(whole == WHOLE);
    CHECK(mind_open_area(mind, "ranks", 8192, MIND_ACCESS_NONE, MIND_OPEN_EXISTING, NULL) == FIRST);
    whole = 1;
    FAILS(mind_open_area(mind, "taken", 1, MIND_ACCESS_WRITE, MIND_OPEN_NEW, &whole), NULL, EEXIST,
          "`taken` is there (EEXIST)");
    CHECK(whole == 1);
    CHECK(mind_protect(mind, FIRST, 4096, MIND_ACCESS_READ) == 0);
    CHECK(mind_sync(mind, FIRST, 100) == 0);
    FAILS(mind_sync(mind, NULL, 100), -1, EIO, "is lost (EIO)");
    CHECK(mind_unlink_area(mind, "ranks") == 0);
    CHECK(mind_unmap(mind, FIRST, WHOLE) == 0);

    CHECK(mind_detach(mind) == 0);
    CHECK(is_bus(FIRST));
    FAILS(mind_map(mind, 4096, MIND_ACCESS_WRITE), NULL, ENOTCONN, "has detached");
    FAILS(mind_detach(mind), -1, ENOTCONN, "has detached");
    FAILS(mind_attach("weather", NULL), NULL, EBUSY, "a process attaches once");
    CHECK(mind_blade(mind) == 3);
    return 0;
}
