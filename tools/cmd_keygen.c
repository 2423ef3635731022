/* SPDX-License-Identifier: Apache-2.0 */
/* sircl keygen FILE: a fresh key as 64 hexadecimal digits, readable by its owner only, never over another. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/auth.h"
#include "sircl.h"

int cmd_keygen(int argc, char **argv)
{
	char text[2 * KEY_BYTES + 2];
	int fd, saved = 0;

	if (argc != 2 || argv[1][0] == '-' || argv[1][0] == '\0')
		return tool_error("keygen", "takes the name of the file to make, and nothing else");
	if (auth_random_hex(text, KEY_BYTES) != SIRCL_SUCCESS)
		return tool_error("keygen", "%s", error_last()->msg);
	text[sizeof(text) - 2] = '\n';
	fd = open(argv[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return tool_error("keygen", "%s is there already and may be in use; remove it first",
				  argv[1]);
	if (fd < 0)
		return tool_error("keygen", "%s: %s", argv[1], strerror(errno));
	errno = EIO; /* for a short write */
	if (fchmod(fd, 0600) != 0 || write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1 ||
	    fsync(fd) != 0)
		saved = errno;
	if (close(fd) != 0 && saved == 0)
		saved = errno;
	explicit_bzero(text, sizeof(text));
	if (saved != 0) {
		unlink(argv[1]);
		return tool_error("keygen", "writing %s: %s", argv[1], strerror(saved));
	}
	printf("%s: copy it to every machine of the job (mode 600) and set SIRCL_KEY_FILE to its path on all "
	       "ranks\n",
	       argv[1]);
	return 0;
}
