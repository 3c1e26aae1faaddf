/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs in C on MIND: memory that is the same for all processes of a protection domain, on all blades, and larger
 * than any of them. Generated from the crate mind-c; do not edit.
 *
 * A process attaches once (mind_attach), allocates memory (mind_map) or opens it by its name (mind_open_area), and uses
 * it as any other memory: it is coherent, stores are totally ordered (TSO, as on one x86 machine), atomic instructions
 * work, and a pointer into it is valid in every process of the domain, on every blade.
 *
 * ERRORS. Functions that return a pointer return NULL when they fail, those that return an int -1, and set errno. The
 * numbers that they give are listed with each. mind_error says the same in English, with more detail. An access, as
 * opposed to a call, fails as with any memory: by SIGSEGV where the domain may not (nothing is mapped there, or is
 * read-only), by SIGBUS where the memory cannot be had any more (the blade's agent has ended, the network fails, writes
 * were lost and the domain chose MIND_ON_LOSS_FAIL, the process has detached). In a system call it is EFAULT.
 *
 * THREADS. Every function may be called by any thread at any time, but not by a signal handler. The library has a thread
 * of its own, "mind-guard", to which no signal is delivered.
 *
 * SIGNALS. The library installs no handler and changes no disposition: a program may handle SIGSEGV and SIGBUS itself.
 *
 * FORK. A child has none of the memory (an access is a SIGSEGV) and is not attached: calls with its parent's struct mind
 * fail with ENOTCONN. It may attach on its own, and should execute another program otherwise.
 *
 * DLCLOSE leaves the library where it is, since its thread runs in it.
 *
 * What must not be done with the memory: mremap, munmap or MADV_REMOVE; pinning it for direct or fixed I/O (io_uring's
 * registered buffers, vmsplice with SPLICE_F_GIFT): the blade would not see such accesses. Core dumps leave it out.
 *
 * STDERR. If the library cannot go on safely (the kernel refuses what keeps accesses from reading zeros, say) it writes a
 * line there and calls abort. The environment variable MIND_LOG (error, warn, info, debug) has it say more.
 */


#ifndef MIND_H
#define MIND_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; mind_version() is the library's. */
#define MIND_VERSION "0.1.0"
#define MIND_VERSION_MAJOR 0
#define MIND_VERSION_MINOR 1
#define MIND_VERSION_PATCH 0

/* What a struct mind_options begins as: all defaults. */
#define MIND_OPTIONS_INIT { sizeof (struct mind_options), 0, 0, NULL }

/**
 * What a domain may do with memory. The values are those of mmap on Linux.
 */
enum mind_access {
    /**
     * Nothing (PROT_NONE).
     */
    MIND_ACCESS_NONE = 0,
    /**
     * Read (PROT_READ).
     */
    MIND_ACCESS_READ = 1,
    /**
     * Read and write (PROT_READ | PROT_WRITE).
     */
    MIND_ACCESS_WRITE = 3,
};

/**
 * Whether an area must be there when it is opened.
 */
enum mind_open {
    /**
     * It must be there (shm_open without O_CREAT).
     */
    MIND_OPEN_EXISTING = 0,
    /**
     * It is made if it is not there (O_CREAT).
     */
    MIND_OPEN_OR_CREATE = 1,
    /**
     * It must not be there (O_CREAT | O_EXCL).
     */
    MIND_OPEN_NEW = 2,
};

/**
 * What readers of a region see when a blade is gone that wrote into it, and with it what it had not written back. A
 * domain has one choice, made by the first process that has one.
 */
enum mind_on_loss {
    /**
     * Whatever the domain has chosen; MIND_ON_LOSS_LAST_WRITTEN if it has not.
     */
    MIND_ON_LOSS_AS_CHOSEN = 0,
    /**
     * What was written back last.
     */
    MIND_ON_LOSS_LAST_WRITTEN = 1,
    /**
     * SIGBUS at every access to the region, until it is unmapped.
     */
    MIND_ON_LOSS_FAIL = 2,
};

/**
 * A process that is attached to its blade. There is one in a process.
 */
struct mind;

/**
 * What a process may choose when it attaches. Every member but `size` may be 0, which is its default; begin with
 * MIND_OPTIONS_INIT, so that members that a later version has are 0 too.
 */
struct mind_options {
    /**
     * sizeof (struct mind_options).
     */
    size_t size;
    /**
     * What readers see when writes are lost with a blade: one of enum mind_on_loss.
     */
    int on_loss;
    /**
     * Must be 0.
     */
    int reserved;
    /**
     * The path of the socket of the blade's agent (/run/mind-blade.sock, say), a string in UTF-8. NULL: what the
     * environment variable MIND_BLADE_SOCKET holds.
     */
    const char *socket;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens memory by its name in the domain, at the same address for every process, on every blade. What is new is zeroed.
 *
 * `name`: a string in UTF-8, at most 255 bytes. `length`: bytes, rounded up to whole pages of 4096, if it is made; otherwise no
 * more than it has, or 0. `access`: one of enum mind_access; what the domain may do with it, if it is made. `open`: one
 * of enum mind_open. `whole`: where its length in bytes is to be stored, which is what mind_unmap takes; may be NULL.
 *
 * Returns the first address, or NULL with errno: EINVAL (an argument, or a `length` of more than it has), ENAMETOOLONG,
 * ENOENT, EEXIST (as `open` says), EFBIG, ENOMEM, EIO, ENOTCONN.
 */
void *mind_open_area(struct mind *mind,
                     const char *name,
                     size_t length,
                     int access,
                     int open,
                     size_t *whole);

/**
 * Takes a name away (shm_unlink). The memory stays until it is unmapped by all who opened it. `name`: as of
 * mind_open_area.
 *
 * Returns 0, or -1 with errno: EINVAL, ENAMETOOLONG, ENOENT, EIO, ENOTCONN.
 */
int mind_unlink_area(struct mind *mind, const char *name);

/**
 * Attaches the calling process to the blade on whose host it runs, in the protection domain called `domain`, which is
 * made if there is none.
 *
 * `domain`: a string in UTF-8, at most 255 bytes. `options`: what to choose, or NULL for the defaults.
 *
 * Returns what the other functions take, or NULL with errno: EINVAL (an argument, or the domain has chosen another
 * `on_loss`), E2BIG (`options` has choices that this library does not know), ENAMETOOLONG, ENOTCONN (no `socket` is
 * named and MIND_BLADE_SOCKET is not set, or the blade's agent ended), ENOENT, ECONNREFUSED, EACCES (no agent at that
 * path that the process may talk to), EPROTO (the agent has another version), EBUSY (the process is attached already,
 * or was), EPERM (no userfaultfd for this user), ENOMEM (the window does not fit, or the kernel is too old), EEXIST
 * (something else is mapped where the window is to be), EAGAIN (the agent has as many programs as it takes), EIO (the
 * controller is out of reach).
 */
struct mind *mind_attach(const char *domain,
                         const struct mind_options *options);

/**
 * Leaves the domain, as the end of the process would: what it wrote is kept, and memory that it has not unmapped stays
 * the domain's. From the call on, every access to the domain's memory is a SIGBUS, in every thread, and all other calls
 * fail with ENOTCONN. Returns once the blade has let the process go. A process need not detach before it ends.
 *
 * Returns 0, or -1 with errno: EINVAL (`mind`), ENOTCONN (the process is not attached any more), ENOMEM (the window
 * cannot be given up; the process stays attached).
 */
int mind_detach(struct mind *mind);

/**
 * The number of the blade on whose host the process runs, from 0; -1 with errno EINVAL for a bad `mind`.
 */
int mind_blade(const struct mind *mind);

/**
 * The number of the protection domain; 0 with errno EINVAL for a bad `mind`.
 */
uint32_t mind_domain(const struct mind *mind);

/**
 * Says in English what was wrong with the calling thread's last call that failed: the object, what was tried, what to
 * do about it. "" when none has failed. Never NULL. The text is valid until the thread's next call that fails, or its
 * end.
 */
const char *mind_error(void);

/**
 * Allocates zeroed memory, as mmap does. Every process of the domain can use it, on every blade, at the same address.
 *
 * `length`: bytes, rounded up to whole pages of 4096. `access`: one of enum mind_access; what the domain may do with it.
 *
 * Returns the first address, or NULL with errno: EINVAL (an argument, or no length), EFBIG (more than a memory blade
 * can have), ENOMEM (more than there is), EIO, ENOTCONN.
 */
void *mind_map(struct mind *mind,
               size_t length,
               int access);

/**
 * Frees memory that mind_map or mind_open_area returned, whole, for every process of the domain. An area is freed when
 * it has been unmapped as often as it was opened, and its name was taken away.
 *
 * `address`, `length`: as they were returned and asked for.
 *
 * Returns 0, or -1 with errno: EINVAL (that is no such memory), EIO, ENOTCONN.
 */
int mind_unmap(struct mind *mind,
               void *address,
               size_t length);

/**
 * Changes what the domain may do with whole pages of its memory. Returns when it is so on every blade.
 *
 * `address`: that of a page. `length`: bytes, rounded up to whole pages. `access`: one of enum mind_access.
 *
 * Returns 0, or -1 with errno: EINVAL (an argument, or not the address of a page), ENOMEM (something of the range is
 * not the domain's), EIO, ENOTCONN.
 */
int mind_protect(struct mind *mind,
                 void *address,
                 size_t length,
                 int access);

/**
 * Waits until memory has what the domain's programs on this blade wrote to a range before (msync with MS_SYNC). From
 * then on it outlives the blade.
 *
 * `length`: bytes.
 *
 * Returns 0, or -1 with errno: EINVAL (an argument, or the range is not in the window), EIO (something could not be
 * written back, and is lost), ENOTCONN.
 */
int mind_sync(struct mind *mind,
              const void *address,
              size_t length);

/**
 * The version of the library that the program runs with, "MAJOR.MINOR.PATCH"; MIND_VERSION is that of the header that
 * it was compiled with. They have the same MAJOR.MINOR, which is part of the library's name (libmind.so.MAJOR.MINOR).
 */
const char *mind_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MIND_H */
