/* SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters; included several times with different macros (base/param.h). No include guard on
 * purpose. Macros: id, name, NCCL fallback or NULL, default, then range or choices, help. */
PARAM_ENUM(DEBUG, "SIRCL_DEBUG", "NCCL_DEBUG", "warn", "none|version|warn|info|abort|trace",
	   "how much is logged")
PARAM_STR(DEBUG_SUBSYS, "SIRCL_DEBUG_SUBSYS", "NCCL_DEBUG_SUBSYS", "",
	  "subsystems whose INFO lines are logged, e.g. INIT,LINK or ^LANE")
PARAM_STR(DEBUG_FILE, "SIRCL_DEBUG_FILE", "NCCL_DEBUG_FILE", "",
	  "file for the log, %h host, %p process id; unset: stderr")
PARAM_ENUM(
	TRANSPORT, "SIRCL_TRANSPORT", NULL, "auto", "auto|shm|tcp|verbs",
	"provider of the lanes; auto: shm within a machine, verbs where both ends of a cable can, else tcp")
PARAM_STR(HCA, "SIRCL_HCA", "NCCL_IB_HCA", "",
	  "RDMA devices that may be lanes, e.g. rocep1s0f0:1,mlx5 (prefix list, = exact, ^ not); unset: all")
PARAM_INT(GID_INDEX, "SIRCL_GID_INDEX", "NCCL_IB_GID_INDEX", "-1", -1, 255,
	  "index of the GID whose address RDMA lanes use; -1: link-local IPv6, else IPv4, at whatever index")
PARAM_INT(LANES, "SIRCL_LANES", NULL, "0", 0, 8,
	  "lanes per cable; 0: all that are found (shm and loopback: 1)")
PARAM_ENUM(ALGO, "SIRCL_ALGO", NULL, "auto", "auto|two-matchings|exchange|ring|doubling|two-shot|pipeline",
	   "forces one algorithm on the collectives that have it")
PARAM_ENUM(DETERMINISTIC, "SIRCL_DETERMINISTIC", NULL, "0", "0|1", "1: sums in rank order, whatever the size")
PARAM_ENUM(CPU, "SIRCL_CPU", NULL, "auto", "auto|generic|avx2|avx512|neon",
	   "instructions that reductions use; generic: no vectors. The results are the same")
PARAM_ENUM(CHECKSUM, "SIRCL_CHECKSUM", NULL, "0", "0|1",
	   "1: CRC32C over payload too, not only over headers; each hop checks it before it uses the data")
PARAM_INT(START_TIMEOUT, "SIRCL_START_TIMEOUT", NULL, "60000", 100, 86400000,
	  "limit for starting a communicator, ms")
PARAM_INT(TIMEOUT, "SIRCL_TIMEOUT", NULL, "30000", 100, 86400000,
	  "limit for a stalled transport inside a collective, ms")
PARAM_INT(HEARTBEAT, "SIRCL_HEARTBEAT", NULL, "50", 1, 10000, "time between heartbeats of an idle lane, ms")
PARAM_INT(
	SUSPECT, "SIRCL_SUSPECT", NULL, "250", 5, 60000,
	"silence after which a lane is suspected while its sisters are heard, ms; at least three heartbeats")
PARAM_SIZE(WINDOW, "SIRCL_WINDOW", NULL, "1M", 65536, 268435456,
	   "bytes that a channel may have in flight to a neighbour; on one machine at most 256K")
PARAM_SIZE(RELAY_WINDOW, "SIRCL_RELAY_WINDOW", NULL, "256K", 65536, 268435456,
	   "the same for a channel that passes through relays")
PARAM_SIZE(SLICE, "SIRCL_SLICE", NULL, "0", 0, 67108864, "bytes of a slice; 0: the algorithm's choice")
PARAM_INT(SPIN, "SIRCL_SPIN", NULL, "-1", -1, 1000000,
	  "microseconds to spin before yielding; -1: by ranks and cores")
PARAM_STR(PROGRESS_CPU, "SIRCL_PROGRESS_CPU", NULL, "",
	  "CPUs for the background thread, e.g. 7 or 5-9; none: left alone; unset: fast cores near the NIC")
PARAM_STR(ROOT, "SIRCL_ROOT", NULL, "", "rendezvous: host:port, or unix:@NAME for ranks of one machine")
PARAM_INT(PORT, "SIRCL_PORT", NULL, "28571", 1, 65535,
	  "port of the rendezvous where only a host is known (MASTER_ADDR, Slurm)")
PARAM_STR(SECRET, "SIRCL_SECRET", NULL, "", "secret of the job, set by sircl run")
PARAM_STR(KEY, "SIRCL_KEY", NULL, "", "key of the job")
PARAM_STR(KEY_FILE, "SIRCL_KEY_FILE", NULL, "",
	  "file that holds the key of the job; nobody else may be able to read it")
PARAM_STR(SOCKET_IFNAME, "SIRCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "",
	  "management interface (prefix list, = exact, ^ not)")
PARAM_STR(IFNAME, "SIRCL_IFNAME", NULL, "",
	  "interfaces that may be lanes (prefix list, = exact, ^ not); unset: all that qualify")
PARAM_STR(LAB, "SIRCL_LAB", NULL, "",
	  "tag in the name of every socket and file of a job; unset: the process id of its root")
PARAM_INT(RANK, "SIRCL_RANK", NULL, "-1", -1, 65535,
	  "rank of this process, set by sircl run for programs to read; -1: unset")
PARAM_INT(NRANKS, "SIRCL_NRANKS", NULL, "0", 0, 65535,
	  "number of ranks, set by sircl run for programs to read; 0: unset")
PARAM_INT(LOCAL_RANK, "SIRCL_LOCAL_RANK", NULL, "-1", -1, 65535,
	  "rank among the processes of this machine, set by sircl run for programs to read; -1: unset")
PARAM_INT(LOCAL_NRANKS, "SIRCL_LOCAL_NRANKS", NULL, "0", 0, 65535,
	  "number of ranks on this machine, set by sircl run for programs to read; 0: unset")
PARAM_STR(SSH, "SIRCL_SSH", NULL, "ssh -o BatchMode=yes",
	  "what sircl run -H reaches a host with: a command that is given HOST and one command line")
