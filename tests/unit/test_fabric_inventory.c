/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory of RDMA ports, on trees built from recorded facts of a DGX Spark (sysfs_tree.h), on hostile
 * ones, and on trees recorded on running machines (tests/data/sysfs).
 */
#include <glob.h>
#include "base/error.h"
#include "fabric/inventory.h"
#include "fabric/inventory_sysfs.h"
#include "sysfs_tree.h"

static struct tree tree;
static struct inventory *inv;

static void read_tree(void)
{
	inventory_free(inv);
	ck_assert_int_eq(inventory_read(tree.sys, &inv), SIRCL_SUCCESS);
	ck_assert_ptr_nonnull(inv);
}

static void spark(struct spark s)
{
	spark_build(&tree, &s);
	read_tree();
}

static void drop(void)
{
	inventory_free(inv);
	inv = NULL;
	tree_free(&tree);
}

/* The port at spark_port[i]. */
static const struct rdma_port *at(int i)
{
	const struct rdma_port *p = inventory_find(inv, spark_port[i].netdev);

	ck_assert_msg(p != NULL, "%s has no port", spark_port[i].netdev);
	return p;
}

/* (f0, P2f0), (f1, P2f1), and no other two. */
static void sisters_are_the_cages(void)
{
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_msg(rdma_port_sisters(at(i), at(k)) == (i != k && i % 2 == k % 2),
				      "%s and %s", at(i)->device, at(k)->device);
}

static void no_sisters(void)
{
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_msg(!rdma_port_sisters(at(i), at(k)), "%s and %s", at(i)->device,
				      at(k)->device);
}

START_TEST(test_inventory_healthy_spark_is_read_in_full)
{
	spark((struct spark){ .cage = { true, true }, .numa = "0" });
	ck_assert_int_eq(inv->n, 4);
	for (int i = 0; i < 4; i++) {
		const struct rdma_port *p = at(i);

		ck_assert_str_eq(p->device, spark_port[i].device);
		ck_assert_uint_eq(p->port, 1);
		ck_assert_uint_eq(p->image_guid, 0x4cbb47030000a110u);
		ck_assert_uint_eq(p->node_guid,
				  0x4cbb470300000000u | strtoul(spark_port[i].guid + 15, NULL, 16));
		ck_assert_str_eq(p->phys_port, spark_port[i].phys);
		ck_assert_str_eq(p->switch_id, "10a100000347bb4c");
		ck_assert_uint_eq(p->pci_domain, i < 2 ? 0 : 2);
		ck_assert_uint_eq(p->pci_bus, 1);
		ck_assert_uint_eq(p->pci_slot, 0);
		ck_assert_uint_eq(p->pci_function, (unsigned)i % 2);
		ck_assert_int_eq(p->numa, 0);
		ck_assert(p->active);
		ck_assert_uint_eq(p->rate_mbps, 200000);
		ck_assert_int_eq(p->ngids, 4);
		for (int k = 0; k < 4; k++) {
			ck_assert_uint_eq(p->gid[k].index, (unsigned)k);
			ck_assert(p->gid[k].v2 == (k % 2 == 1));
		}
		ck_assert_uint_eq(p->gid[1].b[0], 0xfe);
		ck_assert_uint_eq(p->gid[3].b[14], 0x64 + (unsigned)i);
	}
	ck_assert_ptr_null(inventory_find(inv, "enP7s7"));
	ck_assert_ptr_null(inventory_find(inv, ""));
	ck_assert_ptr_null(inventory_find(inv, NULL));
	sisters_are_the_cages();
	drop();
}
END_TEST

START_TEST(test_inventory_sisters_do_not_depend_on_names)
{
	spark((struct spark){ .cage = { true, true }, .mlx5_names = true });
	ck_assert_int_eq(inv->n, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_str_eq(at(i)->device, spark_port[i].mlx5);
	sisters_are_the_cages();
	drop();
}
END_TEST

START_TEST(test_inventory_sisters_by_function_where_ports_have_no_name)
{
	spark((struct spark){ .cage = { true, true } });
	for (int i = 0; i < 4; i++)
		tree_unreadable(&tree, "class/net/%s/phys_port_name", spark_port[i].netdev);
	read_tree();
	sisters_are_the_cages();
	/* one has a name, the other not */
	tree_file(&tree, "p0", "class/net/%s/phys_port_name", spark_port[0].netdev);
	read_tree();
	sisters_are_the_cages();
	drop();
}
END_TEST

START_TEST(test_inventory_sisters_by_port_name_where_functions_differ)
{
	spark((struct spark){ .cage = { true, true } });
	/* named the other way round in one domain: the name is what counts */
	tree_file(&tree, "p1", "class/net/%s/phys_port_name", spark_port[2].netdev);
	tree_file(&tree, "p0", "class/net/%s/phys_port_name", spark_port[3].netdev);
	read_tree();
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert(rdma_port_sisters(at(i), at(k)) == (i + k == 3));
	drop();
}
END_TEST

START_TEST(test_inventory_sisters_are_on_one_card)
{
	spark((struct spark){ .cage = { true, true } });
	for (int i = 0; i < 4; i++)
		tree_unreadable(&tree, "class/infiniband/%s/sys_image_guid", spark_port[i].device);
	read_tree();
	ck_assert_uint_eq(at(0)->image_guid, 0);
	sisters_are_the_cages(); /* by the switch id */
	for (int i = 0; i < 4; i++)
		tree_unreadable(&tree, "class/net/%s/phys_switch_id", spark_port[i].netdev);
	read_tree();
	ck_assert_str_eq(at(0)->switch_id, "");
	no_sisters();
	/* two cards, whatever the switch id says */
	for (int i = 0; i < 4; i++) {
		tree_file(&tree, spark_port[i / 2 * 2].guid, "class/infiniband/%s/sys_image_guid",
			  spark_port[i].device);
		tree_file(&tree, "10a100000347bb4c", "class/net/%s/phys_switch_id", spark_port[i].netdev);
	}
	read_tree();
	no_sisters();
	drop();
}
END_TEST

static void gid_refused(int port, int index, const char *why, const char *list)
{
	struct rdma_gid g;
	const char *msg;

	error_clear();
	ck_assert_int_eq(rdma_port_gid(at(port), index, &g), SIRCL_BAD_CONFIG);
	msg = error_last()->msg;
	ck_assert_msg(strstr(msg, why) != NULL, "%s", msg);
	ck_assert_msg(strstr(msg, list) != NULL, "%s", msg);
	ck_assert_msg(strstr(msg, at(port)->device) && strstr(msg, at(port)->netdev), "%s", msg);
	ck_assert_ptr_null(strchr(msg, '\n'));
}

START_TEST(test_inventory_gid_of_a_drifted_table_is_refused_with_the_valid_ones)
{
	static const char list[] = "allowed there: 1 (fe80::4ebb:47ff:fe00:a110), 4 (192.168.100.10);";
	struct rdma_gid g;

	spark((struct spark){ .cage = { true, true }, .hole = true });
	ck_assert_int_eq(at(0)->ngids, 4);
	ck_assert_int_eq(rdma_port_gid(at(0), 4, &g), SIRCL_SUCCESS);
	ck_assert_uint_eq(g.index, 4);
	ck_assert(g.v2);
	ck_assert_uint_eq(g.b[15], 0x0a);
	ck_assert_int_eq(rdma_port_gid(at(0), 1, &g), SIRCL_SUCCESS);
	ck_assert_uint_eq(g.index, 1);
	gid_refused(
		0, 3,
		"SIRCL_GID_INDEX=3 (or NCCL_IB_GID_INDEX): GID 3 of rocep1s0f0 port 1 (enp1s0f0np0) is empty",
		list);
	gid_refused(0, 0, "(fe80::4ebb:47ff:fe00:a110) is RoCE v1", list);
	gid_refused(0, 2, "RoCE v1", list);
	gid_refused(0, 5, "is empty", list);
	gid_refused(0, 255, "is empty", list);
	gid_refused(0, -1, "is empty", list);
	sisters_are_the_cages();
	drop();
}
END_TEST

START_TEST(test_inventory_gid_without_ipv4_leaves_link_local)
{
	struct rdma_gid g;

	spark((struct spark){ .cage = { true, true }, .no_ipv4 = true });
	ck_assert_int_eq(at(0)->ngids, 2);
	ck_assert_int_eq(rdma_port_gid(at(0), 1, &g), SIRCL_SUCCESS);
	gid_refused(0, 3, "is empty", "allowed there: 1 (fe80::4ebb:47ff:fe00:a110);");
	drop();
}
END_TEST

START_TEST(test_inventory_gid_that_no_lane_can_have_is_refused)
{
	spark((struct spark){ .cage = { true, true }, .no_ipv4 = true });
	tree_file(&tree, "2001:0db8:0000:0000:0000:0000:0000:0001",
		  "class/infiniband/rocep1s0f0/ports/1/gids/3");
	tree_file(&tree, "RoCE v2", "class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/3");
	/* an address whose type cannot be read, and a list that does not fit */
	tree_file(&tree, "fe80:0000:0000:0000:0000:0000:0000:0009",
		  "class/infiniband/rocep1s0f0/ports/1/gids/5");
	for (int i = 0; i < SPARK_GIDS; i++)
		spark_gid(&tree, "class/infiniband/rocep1s0f1/ports/1", i,
			  "fe80:1111:2222:3333:4444:5555:6666:7777", "RoCE v2", "enp1s0f1np1");
	for (int i = 0; i < 2; i++)
		tree_unreadable(&tree, "class/infiniband/roceP2p1s0f0/ports/1/gids/%d", i);
	read_tree();
	gid_refused(0, 3, "(2001:db8::1) is neither a link-local IPv6 nor an IPv4 address",
		    "allowed there: 1 (fe80::4ebb:47ff:fe00:a110);");
	gid_refused(0, 5, "is RoCE v1", "allowed there: 1 (fe80::4ebb:47ff:fe00:a110);");
	gid_refused(1, 99, "is empty", "7777), ...;");
	gid_refused(1, 99, "is empty",
		    "RDMA lanes find their address by themselves"); /* and nothing is cut */
	ck_assert_int_eq(at(2)->ngids, 0);
	gid_refused(2, 1, "is empty", "allowed there: none, its netdev has no address;");
	drop();
}
END_TEST

START_TEST(test_inventory_one_cable_leaves_the_other_cage_down)
{
	for (int cage = 0; cage < 2; cage++) {
		spark((struct spark){ .cage = { cage == 0, cage == 1 } });
		ck_assert_int_eq(inv->n, 4);
		for (int i = 0; i < 4; i++) {
			ck_assert(at(i)->active == (i % 2 == cage));
			ck_assert_uint_eq(at(i)->rate_mbps, i % 2 == cage ? 200000 : 40000);
			ck_assert_int_eq(at(i)->ngids, i % 2 == cage ? 4 : 2);
		}
		sisters_are_the_cages();
		drop();
	}
}
END_TEST

START_TEST(test_inventory_ports_without_carrier_are_there)
{
	spark((struct spark){ .numa = "-1" });
	ck_assert_int_eq(inv->n, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert(!at(i)->active);
		ck_assert_int_eq(at(i)->ngids, 2);
	}
	sisters_are_the_cages();
	drop();
}
END_TEST

START_TEST(test_inventory_states_other_than_active_are_not)
{
	static const char *const state[] = { "1: DOWN",         "2: INIT", "3: ARMED",
					     "5: ACTIVE_DEFER", "ACTIVE",  "4" };

	spark((struct spark){ .cage = { true, true } });
	for (size_t i = 0; i < sizeof(state) / sizeof(state[0]); i++) {
		tree_file(&tree, state[i], "class/infiniband/rocep1s0f0/ports/1/state");
		read_tree();
		ck_assert_msg(!at(0)->active, "%s", state[i]);
		ck_assert(at(1)->active);
	}
	drop();
}
END_TEST

START_TEST(test_inventory_numa_node_is_known_or_not)
{
	static const char *const numa[] = { "0", "-1", "3", NULL, "-2", "99999999999999999999", "0x1" };
	static const int want[] = { 0, -1, 3, -1, -1, -1, -1 };

	for (int i = 0; i < 7; i++) {
		spark((struct spark){ .cage = { true, true }, .numa = numa[i] });
		for (int k = 0; k < 4; k++)
			ck_assert_int_eq(at(k)->numa, want[i]);
		drop();
	}
}
END_TEST

START_TEST(test_inventory_rates_in_words_are_numbers)
{
	static const struct {
		const char *text;
		uint32_t mbps;
	} rate[] = {
		{ "200 Gb/sec (4X HDR)", 200000 },
		{ "100 Gb/sec (4X EDR)", 100000 },
		{ "2.5 Gb/sec (1X SDR)", 2500 },
		{ "0.125 Gb/sec", 125 },
		{ "40 Gb/sec (4X QDR)", 40000 },
		{ "fast", 0 },
		{ "200", 0 },
		{ "99999999999999999999 Gb/sec", 0 },
		{ "-1 Gb/sec", 0 },
		{ "1.99999999999999999999 Gb/sec", 1999 },
	};

	spark((struct spark){ .cage = { true, true } });
	for (size_t i = 0; i < sizeof(rate) / sizeof(rate[0]); i++) {
		tree_file(&tree, rate[i].text, "class/infiniband/rocep1s0f0/ports/1/rate");
		read_tree();
		ck_assert_msg(at(0)->rate_mbps == rate[i].mbps, "%s: %u", rate[i].text, at(0)->rate_mbps);
	}
	drop();
}
END_TEST

START_TEST(test_inventory_no_card_is_no_error)
{
	tree_new(&tree);
	tree_link(&tree, "../../devices/virtual/net/lo", "class/net/lo");
	read_tree();
	ck_assert_int_eq(inv->n, 0);
	tree_unreadable(&tree, "class/infiniband"); /* here: an empty folder, the module without devices */
	read_tree();
	ck_assert_int_eq(inv->n, 0);
	tree_file(&tree, "?", "class/infiniband");
	read_tree();
	ck_assert_int_eq(inv->n, 0);
	drop();
}
END_TEST

/* ---- which netdev ---- */

START_TEST(test_inventory_netdev_by_function_where_gids_do_not_say)
{
	spark((struct spark){ .cage = { true, true } });
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			tree_unreadable(&tree, "class/infiniband/%s/ports/1/gid_attrs/ndevs/%d",
					spark_port[i].device, k);
	read_tree();
	for (int i = 0; i < 4; i++)
		ck_assert_str_eq(at(i)->device, spark_port[i].device);
	sisters_are_the_cages();
	/* a second netdev on the function: that with the port's number */
	tree_link(&tree, "../../../0000:01:00.0", "class/net/enp1s0f0v1/device");
	tree_file(&tree, "1", "class/net/enp1s0f0v1/dev_port");
	read_tree();
	ck_assert_str_eq(at(0)->device, "rocep1s0f0");
	ck_assert_ptr_null(inventory_find(inv, "enp1s0f0v1"));
	/* both have it: neither is taken */
	tree_file(&tree, "0", "class/net/enp1s0f0v1/dev_port");
	read_tree();
	ck_assert_ptr_null(inventory_find(inv, spark_port[0].netdev));
	ck_assert_ptr_null(inventory_find(inv, "enp1s0f0v1"));
	ck_assert_int_eq(inv->n, 4);
	drop();
}
END_TEST

START_TEST(test_inventory_two_ports_of_one_device_have_a_netdev_each)
{
	tree_new(&tree);
	tree_link(&tree, "../../../0000:03:00.0", "class/infiniband/mlx4_0/device");
	tree_file(&tree, "0002:c903:0000:0001", "class/infiniband/mlx4_0/sys_image_guid");
	for (int p = 1; p <= 2; p++) {
		tree_file(&tree, "4: ACTIVE", "class/infiniband/mlx4_0/ports/%d/state", p);
		tree_link(&tree, "../../../0000:03:00.0", "class/net/eth%d/device", p);
		tree_file(&tree, p == 1 ? "0" : "1", "class/net/eth%d/dev_port", p);
	}
	read_tree();
	ck_assert_int_eq(inv->n, 2);
	ck_assert_uint_eq(inventory_find(inv, "eth1")->port, 1);
	ck_assert_uint_eq(inventory_find(inv, "eth2")->port, 2);
	ck_assert(!rdma_port_sisters(&inv->port[0], &inv->port[1])); /* one function */
	drop();
}
END_TEST

START_TEST(test_inventory_soft_roce_has_its_netdev_and_no_function)
{
	tree_new(&tree);
	for (int i = 0; i < 2; i++) {
		char net[8];

		snprintf(net, sizeof(net), "eth%d", i);
		tree_file(&tree, "5054:00ff:fe12:3401", "class/infiniband/rxe%d/node_guid", i);
		tree_file(&tree, "4: ACTIVE", "class/infiniband/rxe%d/ports/1/state", i);
		tree_file(&tree, net, "class/infiniband/rxe%d/parent", i);
		tree_link(&tree, i ? "../../../0000:00:03.0" : "../../../virtio1", "class/net/eth%d/device",
			  i);
	}
	read_tree();
	ck_assert_int_eq(inv->n, 2);
	ck_assert_str_eq(inventory_find(inv, "eth0")->device, "rxe0");
	ck_assert_uint_eq(inventory_find(inv, "eth0")->pci_domain, PCI_NONE);
	ck_assert_uint_eq(inventory_find(inv, "eth0")->pci_function, PCI_NONE);
	ck_assert_int_eq(inventory_find(inv, "eth0")->numa, -1);
	ck_assert_uint_eq(inventory_find(inv, "eth1")->pci_slot, 3); /* that of the card below it */
	ck_assert(!rdma_port_sisters(&inv->port[0], &inv->port[1]));
	/* GIDs come before the parent */
	spark_gid(&tree, "class/infiniband/rxe0/ports/1", 0, "fe80:0000:0000:0000:5054:00ff:fe12:3401",
		  "RoCE v2", "eth1");
	read_tree();
	ck_assert_str_eq(inventory_find(inv, "eth1")->device, "rxe0");
	/* but not with a netdev of another namespace */
	spark_gid(&tree, "class/infiniband/rxe0/ports/1", 0, "fe80:0000:0000:0000:5054:00ff:fe12:3401",
		  "RoCE v2", "eth7");
	read_tree();
	ck_assert_str_eq(inventory_find(inv, "eth0")->device, "rxe0");
	drop();
}
END_TEST

START_TEST(test_inventory_infiniband_is_left_out)
{
	spark((struct spark){ .cage = { true, true } });
	tree_file(&tree, "InfiniBand", "class/infiniband/rocep1s0f0/ports/1/link_layer");
	read_tree();
	ck_assert_int_eq(inv->n, 3);
	ck_assert_ptr_null(inventory_find(inv, spark_port[0].netdev));
	drop();
}
END_TEST

/* ---- filters ---- */

START_TEST(test_inventory_filter_is_nccls)
{
	static const struct {
		const char *filter;
		int want; /* bit i: spark_port[i] */
	} f[] = {
		{ NULL, 15 },
		{ "", 15 },
		{ "roce", 15 },
		{ "rocep1s0f0", 1 },
		{ "rocep1s0f0,rocep1s0f1", 3 },
		{ "rocep1,roceP2p1s0f1", 11 },
		{ "=rocep1s0f0", 1 },
		{ "=rocep1s0f", 0 },
		{ "=roceP2p1s0f0,rocep1s0f1", 6 },
		{ "^rocep1s0f0", 14 },
		{ "^=rocep1s0f0,roceP2p1s0f0", 10 },
		{ "^=rocep1s0f", 15 },
		{ "^roce", 0 },
		{ "mlx5", 0 },
		{ "^mlx5", 15 },
		{ "rocep1s0f0:1", 1 },
		{ "rocep1s0f0:2", 0 },
		{ "=rocep1s0f0:1,rocep1s0f1:2", 1 },
		{ "^rocep1s0f0:2", 15 },
		{ "^rocep1s0f0:1", 14 },
		{ "rocep1s0f0:", 1 },
		{ "rocep1s0f0:1:0:3", 1 },
		{ "rocep1s0f0:1x", 0 },
		{ "rocep1s0f0:99999999999999999999", 0 },
		{ "rocep1s0f0:257", 0 },
		{ "roce:1", 15 },
		{ ":1", 15 },
		{ "=:1", 0 },
		{ ",,rocep1s0f1,", 2 },
		{ ",", 0 },
		{ "^", 15 },
		{ "=", 0 },
		{ "rocep1s0f0np0", 0 },
		{ "=rocep1s0f0 ", 0 },
	};

	spark((struct spark){ .cage = { true, true } });
	for (size_t k = 0; k < sizeof(f) / sizeof(f[0]); k++) {
		int got = 0;

		for (int i = 0; i < 4; i++)
			got |= rdma_port_matches(f[k].filter, at(i)) << i;
		ck_assert_msg(got == f[k].want, "%s: %d, not %d", f[k].filter ? f[k].filter : "NULL", got,
			      f[k].want);
	}
	drop();
}
END_TEST

/* ---- hostile trees ---- */

START_TEST(test_inventory_hostile_tree_is_read_within_bounds)
{
	static const char *const file[] = { "node_guid",
					    "sys_image_guid",
					    "ports/1/state",
					    "ports/1/rate",
					    "ports/1/gids/1",
					    "ports/1/gid_attrs/types/1",
					    "ports/1/gid_attrs/ndevs/0",
					    "ports/1/link_layer",
					    "parent" };
	static const char *const net[] = { "phys_port_name", "phys_switch_id", "dev_port" };
	char *big = malloc(100001), path[PATH_MAX];
	static const char *const text[] = { "",
					    " ",
					    "\t",
					    "x\ny",
					    "\xff\xfe",
					    "4294967296",
					    "-1",
					    "::::",
					    "%s%n",
					    "18446744073709551616",
					    "ffff:ffff:ffff:ffff",
					    "../../../../etc" };

	ck_assert_ptr_nonnull(big);
	memset(big, 'a', 100000);
	big[100000] = '\0';
	spark((struct spark){ .cage = { true, true }, .numa = "0" });
	for (size_t k = 0; k < sizeof(text) / sizeof(text[0]) + 6; k++) {
		for (size_t i = 0; i < 9 + 3; i++) {
			snprintf(path, sizeof(path),
				 i < 9 ? "class/infiniband/rocep1s0f0/%s" : "class/net/enp1s0f0np0/%s",
				 i < 9 ? file[i] : net[i - 9]);
			switch (k) {
			case 0:
				tree_file(&tree, big, "%s", path);
				break;
			case 1:
				tree_unreadable(&tree, "%s", path);
				break;
			case 2:
				tree_link(&tree, strrchr(path, '/') + 1, "%s", path); /* to itself */
				break;
			case 3:
				tree_rmdir(&tree, path);
				break;
			case 4: {
				char full[PATH_MAX];

				tree_rmdir(&tree, path);
				ck_assert_int_eq(mkfifo(tree_path(&tree, full, path), 0600), 0);
				break;
			}
			case 5:
				tree_link(&tree, "/dev/zero", "%s", path);
				break;
			default:
				tree_file(&tree, text[k - 6], "%s", path);
			}
		}
		read_tree();
		ck_assert_msg(inv->n == 3 || inv->n == 4, "%zu: %d", k, inv->n);
		ck_assert_str_eq(at(3)->device, "roceP2p1s0f1");
		ck_assert(rdma_port_sisters(at(1), at(3)));
		if (k <= 10) { /* nothing that can be read as text: as if it were not there */
			ck_assert_int_eq(inv->n, 4);
			ck_assert_str_eq(at(0)->device, "rocep1s0f0");
			ck_assert_str_eq(at(0)->phys_port, "");
			ck_assert_str_eq(at(0)->switch_id, "");
			ck_assert_uint_eq(at(0)->image_guid, 0);
			ck_assert(!at(0)->active);
			ck_assert_uint_eq(at(0)->rate_mbps, 0);
			ck_assert_int_eq(at(0)->ngids, 3);
		}
	}
	free(big);
	drop();
}
END_TEST

START_TEST(test_inventory_hostile_names_and_numbers_of_devices)
{
	char name[256];

	spark((struct spark){ .cage = { true, true } });
	memset(name, 'd', sizeof(name));
	name[200] = '\0';
	tree_file(&tree, "4: ACTIVE", "class/infiniband/%s/ports/1/state", name);
	name[64] = '\0'; /* one too long */
	tree_file(&tree, "4: ACTIVE", "class/infiniband/%s/ports/1/state", name);
	tree_file(&tree, "4: ACTIVE", "class/infiniband/with space/ports/1/state");
	tree_file(&tree, "4: ACTIVE", "class/infiniband/nl\nnl/ports/1/state");
	tree_link(&tree, "loop2", "class/infiniband/loop1");
	tree_link(&tree, "loop1", "class/infiniband/loop2");
	tree_file(&tree, "a file", "class/infiniband/file");
	tree_link(&tree, ".", "class/infiniband/self");
	tree_unreadable(&tree, "class/infiniband/noports");
	tree_file(&tree, "?", "class/infiniband/portsfile/ports");
	for (int i = 0; i < 7; i++) {
		static const char *const port[] = {
			"0", "256", "-1", "x", "1x", "01", "99999999999999999999"
		};

		tree_file(&tree, "4: ACTIVE", "class/infiniband/badports/ports/%s/state", port[i]);
	}
	read_tree();
	ck_assert_int_eq(inv->n, 4);
	name[63] = '\0'; /* fits */
	tree_file(&tree, "4: ACTIVE", "class/infiniband/%s/ports/255/state", name);
	tree_link(&tree, "../../../0000:01:00.0:0", "class/infiniband/%s/device", name);
	read_tree();
	ck_assert_int_eq(inv->n, 5);
	ck_assert_str_eq(inv->port[0].device, name);
	ck_assert_uint_eq(inv->port[0].port, 255);
	ck_assert_uint_eq(inv->port[0].pci_domain, PCI_NONE);
	/* more than there is room for: the first of them, the same ones each time */
	for (int i = 0; i < 100; i++)
		for (int p = 1; p < (i ? 2 : 40); p++)
			tree_file(&tree, "4: ACTIVE", "class/infiniband/a%d/ports/%d/state", i, p);
	for (int i = 0; i < 300; i++)
		tree_file(&tree, "0", "class/net/a%d/dev_port", i);
	read_tree();
	ck_assert_int_eq(inv->n, INVENTORY_PORTS_MAX);
	ck_assert_str_eq(inv->port[0].device, "a0");
	ck_assert_str_eq(inv->port[15].device, "a0");
	ck_assert_uint_eq(inv->port[15].port, 16);
	ck_assert_str_eq(inv->port[16].device, "a1");
	ck_assert_str_eq(inv->port[31].device, "a16");
	drop();
}
END_TEST

START_TEST(test_inventory_table_of_gids_may_be_full)
{
	char gid[64];

	spark((struct spark){ .cage = { true, true } });
	for (int i = 0; i < 300; i++) {
		snprintf(gid, sizeof(gid), "fe80:0000:0000:0000:0000:0000:0000:%04x", i + 1);
		tree_file(&tree, gid, "class/infiniband/rocep1s0f0/ports/1/gids/%d", i);
	}
	read_tree();
	ck_assert_int_eq(at(0)->ngids, INVENTORY_GIDS_MAX);
	ck_assert_uint_eq(at(0)->gid[255].index, 255);
	ck_assert_uint_eq(at(0)->gid[255].b[14], 1);
	drop();
}
END_TEST

START_TEST(test_inventory_pci_addresses_are_whole)
{
	static const char *const bad[] = { "",
					   "0000:01:00",
					   "0000:01:00.",
					   "0000:01:00.8",
					   "0000:01:20.0",
					   "0000:100:00.0",
					   "0000:01:00.0x",
					   "0000:01:00.00",
					   ":01:00.0",
					   "00000000:01:00.0",
					   "virtio1",
					   "0000:01:00.0\n" };
	uint32_t d, b, s, f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!pci_parse(bad[i], &d, &b, &s, &f), "%s", bad[i]);
	ck_assert(pci_parse("10000:aF:1f.7", &d, &b, &s, &f));
	ck_assert(d == 0x10000 && b == 0xaf && s == 0x1f && f == 7);
}
END_TEST

/* ---- recordings ---- */

struct expected {
	int ports, links;
	char link[INVENTORY_PORTS_MAX][128];
};

static void expect(void *arg, const char *what)
{
	struct expected *e = arg;

	if (sscanf(what, "ports %d", &e->ports) == 1)
		return;
	ck_assert_msg(!strncmp(what, "link ", 5) && e->links < INVENTORY_PORTS_MAX, "%s", what);
	snprintf(e->link[e->links++], sizeof(e->link[0]), "%s", what + 5);
}

/* The tree agrees with what other means have said of that machine when it was recorded. */
static void check_recording(const char *file)
{
	struct expected e = { .ports = -1 };

	tree_load(&tree, file, expect, &e);
	read_tree();
	ck_assert_msg(e.ports >= 0, "%s does not say how many ports there are", file);
	ck_assert_msg(inv->n == e.ports, "%s: %d ports, not %d", file, inv->n, e.ports);
	for (int i = 0; i < e.links; i++) {
		char device[64], state[32], netdev[32];
		const struct rdma_port *p;
		unsigned port;

		ck_assert_int_eq(sscanf(e.link[i], "%63[^/]/%u %31s %31s", device, &port, state, netdev), 4);
		p = inventory_find(inv, netdev);
		ck_assert_msg(p && !strcmp(p->device, device) && p->port == port, "%s: %s", file, e.link[i]);
		ck_assert_msg(p->active == !strcmp(state, "ACTIVE"), "%s: %s", file, e.link[i]);
	}
	drop();
}

START_TEST(test_inventory_recorded_trees_are_read_as_their_machines_say)
{
	glob_t g;

	ck_assert_msg(glob("tests/data/sysfs/*.txt", 0, NULL, &g) == 0 && g.gl_pathc > 0,
		      "no recordings in tests/data/sysfs: run this from the top of the tree");
	for (size_t i = 0; i < g.gl_pathc; i++)
		check_recording(g.gl_pathv[i]);
	globfree(&g);
}
END_TEST

/* Recorded and rebuilt a tree reads as before; so the recorder leaves out nothing that is read. */
START_TEST(test_inventory_recorder_keeps_what_is_read)
{
	char cmd[1024], file[256];
	struct inventory *before;
	struct tree first;

	spark((struct spark){ .cage = { true, false }, .hole = true, .numa = "0" });
	tree_unreadable(&tree, "class/net/%s/phys_switch_id", spark_port[1].netdev);
	tree_file(&tree, "eth9", "class/infiniband/rocep1s0f1/parent");
	read_tree();
	before = inv;
	inv = NULL;
	first = tree;
	snprintf(file, sizeof(file), "%s/recording", first.root);
	snprintf(cmd, sizeof(cmd),
		 "bash tests/unit/record-sysfs.sh %s %s && "
		 "echo '! link rocep1s0f0/1 ACTIVE enp1s0f0np0' >>%s",
		 file, first.sys, file);
	ck_assert_int_eq(system(cmd), 0);
	check_recording(file);
	tree_load(&tree, file, expect, &(struct expected){ 0 });
	read_tree();
	ck_assert_int_eq(inv->n, before->n);
	ck_assert_mem_eq(inv, before, sizeof(*inv));
	inventory_free(before);
	tree_free(&first);
	drop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric inventory");
	TCase *c = tcase_create("inventory");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_inventory_healthy_spark_is_read_in_full);
	tcase_add_test(c, test_inventory_sisters_do_not_depend_on_names);
	tcase_add_test(c, test_inventory_sisters_by_function_where_ports_have_no_name);
	tcase_add_test(c, test_inventory_sisters_by_port_name_where_functions_differ);
	tcase_add_test(c, test_inventory_sisters_are_on_one_card);
	tcase_add_test(c, test_inventory_gid_of_a_drifted_table_is_refused_with_the_valid_ones);
	tcase_add_test(c, test_inventory_gid_without_ipv4_leaves_link_local);
	tcase_add_test(c, test_inventory_gid_that_no_lane_can_have_is_refused);
	tcase_add_test(c, test_inventory_one_cable_leaves_the_other_cage_down);
	tcase_add_test(c, test_inventory_ports_without_carrier_are_there);
	tcase_add_test(c, test_inventory_states_other_than_active_are_not);
	tcase_add_test(c, test_inventory_numa_node_is_known_or_not);
	tcase_add_test(c, test_inventory_rates_in_words_are_numbers);
	tcase_add_test(c, test_inventory_no_card_is_no_error);
	tcase_add_test(c, test_inventory_netdev_by_function_where_gids_do_not_say);
	tcase_add_test(c, test_inventory_two_ports_of_one_device_have_a_netdev_each);
	tcase_add_test(c, test_inventory_soft_roce_has_its_netdev_and_no_function);
	tcase_add_test(c, test_inventory_infiniband_is_left_out);
	tcase_add_test(c, test_inventory_filter_is_nccls);
	tcase_add_test(c, test_inventory_hostile_tree_is_read_within_bounds);
	tcase_add_test(c, test_inventory_hostile_names_and_numbers_of_devices);
	tcase_add_test(c, test_inventory_table_of_gids_may_be_full);
	tcase_add_test(c, test_inventory_pci_addresses_are_whole);
	tcase_add_test(c, test_inventory_recorded_trees_are_read_as_their_machines_say);
	if (!getenv("SIRCL_TEST_EMULATED")) /* the emulator does not start other programs */
		tcase_add_test(c, test_inventory_recorder_keeps_what_is_read);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
