/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees that pretend to be sysfs, in a temporary folder. The trees of a DGX Spark are BUILT FROM RECORDED
 * FACTS (names, PCI addresses, GUIDs and their relations, GID tables, states, rates, capacities and
 * frequencies of cores); they are not recordings of a machine, and the identities in them are made up. Not
 * recorded anywhere, so assumed: dev_port, numa_node, length of the GID table, the device links' exact text.
 * tree_load() rebuilds what record-sysfs.sh has recorded.
 */
#ifndef TESTS_SYSFS_TREE_H
#define TESTS_SYSFS_TREE_H
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
	char root[160], sys[176]; /* sys: what /sys would be */
};

static inline void tree_new(struct tree *t)
{
	/* hundreds of small files: on a disk that others write to they take half a minute */
	const char *lab = getenv("SIRCL_LAB"),
		   *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(t->root, sizeof(t->root), "%.80s/sircl-sysfs-%.40s-XXXXXX", tmp ? tmp : "/tmp",
		 lab ? lab : pid);
	ck_assert_ptr_nonnull(mkdtemp(t->root));
	snprintf(t->sys, sizeof(t->sys), "%s/sys", t->root);
	ck_assert_int_eq(mkdir(t->sys, 0755), 0);
}

static inline int tree_rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void tree_free(struct tree *t)
{
	nftw(t->root, tree_rm, 16, FTW_DEPTH | FTW_PHYS);
}

/* The folders above path, links on the way followed; gives the path in full. */
static inline char *tree_path(const struct tree *t, char full[PATH_MAX], const char *path)
{
	ck_assert_int_lt(snprintf(full, PATH_MAX, "%s/%s", t->sys, path), PATH_MAX);
	for (char *s = full + strlen(t->sys) + 1; (s = strchr(s, '/')); s++) {
		*s = '\0';
		ck_assert_msg(mkdir(full, 0755) == 0 || errno == EEXIST, "mkdir %s: %s", full,
			      strerror(errno));
		*s = '/';
	}
	return full;
}

static inline void tree_rmdir(const struct tree *t, const char *path)
{
	char full[PATH_MAX];

	nftw(tree_path(t, full, path), tree_rm, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file with this text and a newline; in place of what was there. */
static inline void tree_file(const struct tree *t, const char *text, const char *fmt, ...)
{
	char path[512], full[PATH_MAX];
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	tree_rmdir(t, path);
	f = fopen(tree_path(t, full, path), "w");
	ck_assert_msg(f != NULL, "%s: %s", full, strerror(errno));
	fprintf(f, "%s\n", text);
	fclose(f);
}

/* There, but not readable: what sysfs refuses with EINVAL or EOPNOTSUPP refuses a folder with EISDIR. */
static inline void tree_unreadable(const struct tree *t, const char *fmt, ...)
{
	char path[512], full[PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	tree_rmdir(t, path);
	ck_assert_int_eq(mkdir(tree_path(t, full, path), 0755), 0);
}

static inline void tree_link(const struct tree *t, const char *target, const char *fmt, ...)
{
	char path[512], full[PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	tree_rmdir(t, path);
	ck_assert_int_eq(symlink(target, tree_path(t, full, path)), 0);
}

/* ---- a DGX Spark ---- */

struct spark {
	bool cage[2]; /* has a cable */
	bool no_ipv4, hole; /* hole: index 3 empty, the IPv4 address of RoCE v2 at 4 */
	bool mlx5_names;
	const char *numa; /* NULL: no such file */
};

/* In the order f0, f1, P2f0, P2f1. */
static const struct {
	const char *device, *mlx5, *netdev, *pci, *phys, *guid, *gid;
} spark_port[4] = {
	{ "rocep1s0f0", "mlx5_0", "enp1s0f0np0", "0000:01:00.0", "p0", "4cbb:4703:0000:a110", "a110" },
	{ "rocep1s0f1", "mlx5_1", "enp1s0f1np1", "0000:01:00.1", "p1", "4cbb:4703:0000:a111", "a111" },
	{ "roceP2p1s0f0", "mlx5_2", "enP2p1s0f0np0", "0002:01:00.0", "p0", "4cbb:4703:0000:a114", "a114" },
	{ "roceP2p1s0f1", "mlx5_3", "enP2p1s0f1np1", "0002:01:00.1", "p1", "4cbb:4703:0000:a115", "a115" },
};

#define SPARK_GIDS 16

static inline void spark_gid(const struct tree *t, const char *port, int i, const char *gid, const char *type,
			     const char *netdev)
{
	tree_file(t, gid, "%s/gids/%d", port, i);
	if (type) {
		tree_file(t, type, "%s/gid_attrs/types/%d", port, i);
		tree_file(t, netdev, "%s/gid_attrs/ndevs/%d", port, i);
	} else {
		tree_unreadable(t, "%s/gid_attrs/types/%d", port, i);
		tree_unreadable(t, "%s/gid_attrs/ndevs/%d", port, i);
	}
}

static inline void spark_gids(const struct tree *t, const struct spark *s, int i, const char *port)
{
	static const char v1[] = "IB/RoCE v1", v2[] = "RoCE v2",
			  none[] = "0000:0000:0000:0000:0000:0000:0000:0000";
	const char *dev = spark_port[i].netdev;
	char ll[64], v4[64];

	snprintf(ll, sizeof(ll), "fe80:0000:0000:0000:4ebb:47ff:fe00:%s", spark_port[i].gid);
	snprintf(v4, sizeof(v4), "0000:0000:0000:0000:0000:ffff:c0a8:%02x0a", 0x64 + i);
	for (int k = 0; k < SPARK_GIDS; k++)
		spark_gid(t, port, k, none, NULL, NULL);
	spark_gid(t, port, 0, ll, v1, dev);
	spark_gid(t, port, 1, ll, v2, dev);
	if (s->no_ipv4 || !s->cage[i % 2])
		return;
	spark_gid(t, port, 2, v4, v1, dev);
	spark_gid(t, port, s->hole ? 4 : 3, v4, v2, dev);
}

static inline void spark_function(const struct tree *t, const struct spark *s, int i)
{
	const char *name = s->mlx5_names ? spark_port[i].mlx5 : spark_port[i].device,
		   *netdev = spark_port[i].netdev, *pci = spark_port[i].pci;
	bool up = s->cage[i % 2];
	char fn[96], ib[160], net[160], link[256];

	snprintf(fn, sizeof(fn), "devices/pci%.4s:00/%.4s:00:00.0/%s", pci, pci, pci);
	snprintf(ib, sizeof(ib), "%s/infiniband/%s", fn, name);
	snprintf(net, sizeof(net), "%s/net/%s", fn, netdev);
	tree_file(t, "0x15b3", "%s/vendor", fn);
	tree_file(t, "0x1021", "%s/device", fn);
	tree_file(t, "0x020000", "%s/class", fn);
	tree_file(t, "0-19", "%s/local_cpulist", fn);
	tree_file(t, "fffff", "%s/local_cpus", fn);
	if (s->numa)
		tree_file(t, s->numa, "%s/numa_node", fn);
	snprintf(link, sizeof(link), "../../../%s", fn);
	tree_link(t, link, "bus/pci/devices/%s", pci);

	tree_file(t, spark_port[i].guid, "%s/node_guid", ib);
	tree_file(t, spark_port[0].guid, "%s/sys_image_guid", ib);
	tree_file(t, "28.45.4028", "%s/fw_ver", ib);
	snprintf(link, sizeof(link), "../../../%s", pci);
	tree_link(t, link, "%s/device", ib);
	snprintf(link, sizeof(link), "../../%s", ib);
	tree_link(t, link, "class/infiniband/%s", name);
	snprintf(link, sizeof(link), "%s/ports/1", ib);
	tree_file(t, up ? "4: ACTIVE" : "1: DOWN", "%s/state", link);
	tree_file(t, up ? "5: LinkUp" : "3: Disabled", "%s/phys_state", link);
	tree_file(t, up ? "200 Gb/sec (2X NDR)" : "40 Gb/sec (4X QDR)", "%s/rate", link);
	tree_file(t, "Ethernet", "%s/link_layer", link);
	spark_gids(t, s, i, link);

	snprintf(link, sizeof(link), "../../../%s", pci);
	tree_link(t, link, "%s/device", net);
	snprintf(link, sizeof(link), "../../%s", net);
	tree_link(t, link, "class/net/%s", netdev);
	tree_file(t, "0", "%s/dev_port", net);
	tree_file(t, spark_port[i].phys, "%s/phys_port_name", net);
	tree_file(t, "10a100000347bb4c", "%s/phys_switch_id", net);
	tree_file(t, up ? "up" : "down", "%s/operstate", net);
	tree_file(t, up ? "1" : "0", "%s/carrier", net);
}

/* 20 cores in two mixed clusters: A725 at 0-4 and 10-14, X925 at 5-9 and 15-19, of five frequencies. */
static inline void spark_cpus(const struct tree *t, bool capacity, bool frequency)
{
	tree_file(t, "0-19", "devices/system/cpu/online");
	tree_file(t, "0-19", "devices/system/cpu/possible");
	tree_file(t, "0-19", "devices/system/cpu/present");
	tree_file(t, "0", "devices/system/node/online");
	tree_file(t, "0-19", "devices/system/node/node0/cpulist");
	tree_file(t, "fffff", "devices/system/node/node0/cpumap");
	for (int i = 0; i < 20; i++) {
		char text[32];

		snprintf(text, sizeof(text), "%05x", 1u << i);
		tree_file(t, text, "devices/system/cpu/cpu%d/topology/thread_siblings", i);
		tree_file(t, text, "devices/system/cpu/cpu%d/topology/core_cpus", i);
		tree_file(t, "fffff", "devices/system/cpu/cpu%d/topology/core_siblings", i);
		tree_file(t, "fffff", "devices/system/cpu/cpu%d/topology/package_cpus", i);
		tree_file(t, "36", "devices/system/cpu/cpu%d/topology/physical_package_id", i);
		snprintf(text, sizeof(text), "%d", i);
		tree_file(t, text, "devices/system/cpu/cpu%d/topology/core_id", i);
		if (capacity)
			tree_file(t,
				  i < 5    ? "718"
				  : i < 10 ? "997"
				  : i < 15 ? "731"
				  : i < 19 ? "1017"
					   : "1024",
				  "devices/system/cpu/cpu%d/cpu_capacity", i);
		if (frequency)
			tree_file(t,
				  i < 5    ? "2808000"
				  : i < 10 ? "3900000"
				  : i < 15 ? "2860000"
				  : i < 19 ? "3978000"
					   : "4004000",
				  "devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", i);
	}
}

/* Management and wireless, which have no RDMA device, are there too. */
static inline void spark_build(struct tree *t, const struct spark *s)
{
	tree_new(t);
	for (int i = 0; i < 4; i++)
		spark_function(t, s, i);
	tree_file(t, "0", "devices/pci0007:00/0007:00:00.0/0007:01:00.0/net/enP7s7/dev_port");
	tree_link(t, "../../../0007:01:00.0",
		  "devices/pci0007:00/0007:00:00.0/0007:01:00.0/net/enP7s7/device");
	tree_link(t, "../../devices/pci0007:00/0007:00:00.0/0007:01:00.0/net/enP7s7", "class/net/enP7s7");
	tree_file(t, "0", "devices/virtual/net/lo/dev_port");
	tree_link(t, "../../devices/virtual/net/lo", "class/net/lo");
}

/* ---- recordings ---- */

/* Rebuilds a recording; each line that says what was found out by other means goes to expect. */
static inline void tree_load(struct tree *t, const char *file, void (*expect)(void *arg, const char *what),
			     void *arg)
{
	char line[4096];
	FILE *f = fopen(file, "r");

	ck_assert_msg(f != NULL, "%s: %s", file, strerror(errno));
	tree_new(t);
	while (fgets(line, sizeof(line), f)) {
		char *path = line + 2, *value;

		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		ck_assert_msg(line[1] == ' ', "%s: %s", file, line);
		if (line[0] == '!') {
			expect(arg, path);
			continue;
		}
		if (line[0] == 'u') {
			tree_unreadable(t, "%s", path);
			continue;
		}
		value = strchr(path, ' ');
		ck_assert_msg(value != NULL, "%s: %s", file, line);
		*value++ = '\0';
		if (line[0] == 'f')
			tree_file(t, value, "%s", path);
		else if (line[0] == 'l')
			tree_link(t, value, "%s", path);
		else
			ck_abort_msg("%s: a line that begins with %c", file, line[0]);
	}
	fclose(f);
}
#endif
