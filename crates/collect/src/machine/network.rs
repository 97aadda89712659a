//! Reads the counters of errors of TCP and of InfiniBand ports. Those of interfaces are read with
//! their bytes, in `traffic`.
//!
//! `/proc/net` is of the network namespace of this process. The files of InfiniBand are not divided
//! by namespaces. A process of the job in a namespace of its own has other counters of TCP.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tprof_trace::model::counter;

/// Most interfaces, and most InfiniBand ports, that are read. Reading an InfiniBand port may need a
/// command of its adapter's firmware.
pub(super) const MOST_PLACES: usize = 64;

/// Values by name of the counter.
pub type Reading = BTreeMap<String, u64>;

/// Reads all counters that there are. `root` is `/`, except in tests. The error says why TCP's can't
/// be read; of the others, a host may have none.
pub fn read(root: &Path) -> Result<Reading, String> {
    let mut reading = Reading::new();
    let text =
        |path: &str| fs::read_to_string(root.join(path)).map_err(|e| format!("/{path}: {e}"));
    let snmp = text("proc/net/snmp")?;
    for (name, key) in [
        (counter::TCP_RETRANSMITTED, "RetransSegs"),
        (counter::TCP_SENT, "OutSegs"),
        (counter::TCP_RECEIVE_ERRORS, "InErrs"),
    ] {
        reading.extend(value(&snmp, "Tcp:", key).map(|value| (name.to_owned(), value)));
    }
    let netstat = text("proc/net/netstat").unwrap_or_default();
    for (name, key) in
        [(counter::TCP_TIMEOUTS, "TCPTimeouts"), (counter::TCP_LISTEN_DROPS, "ListenDrops")]
    {
        reading.extend(value(&netstat, "TcpExt:", key).map(|value| (name.to_owned(), value)));
    }
    infiniband(root, &mut reading);
    Ok(reading)
}

/// Finds a value in `/proc/net/snmp` or `netstat`, in which a line of names precedes a line of
/// values. Some values are signed; a negative one is no count.
fn value(text: &str, group: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == key)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

fn infiniband(root: &Path, reading: &mut Reading) {
    for (place, port) in ports(root).into_iter().take(MOST_PLACES) {
        for quantity in counter::INFINIBAND {
            let file = quantity.trim_start_matches("infiniband_");
            let read = |folder: &str| {
                let text = fs::read_to_string(port.join(folder).join(file)).ok()?;
                text.trim().parse().ok()
            };
            let value = read("counters").or_else(|| read("hw_counters"));
            reading.extend(value.map(|value| (placed(quantity, &place), value)));
        }
    }
}

/// Returns the InfiniBand and RoCE ports: `mlx5_0:1`, with the folder of its files.
pub(super) fn ports(root: &Path) -> Vec<(String, PathBuf)> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let devices = entries(&root.join("sys/class/infiniband")).into_iter();
    let ports = devices.flat_map(|device| {
        let of_device = entries(&device.join("ports")).into_iter();
        of_device.map(move |port| (format!("{}:{}", name(&device), name(&port)), port))
    });
    ports.collect()
}

pub(super) fn placed(quantity: &str, place: &str) -> String {
    format!("{quantity}{}{place}", counter::PLACE)
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
        Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs OutRsts\n\
        Tcp: 1 -1 500 600 7 2 3\nUdp: InDatagrams\nUdp: 9\n";
    const NETSTAT: &str = "TcpExt: SyncookiesSent ListenDrops TCPTimeouts\nTcpExt: 0 4 5\n\
        IpExt: InNoRoutes\nIpExt: 0\n";
    pub(in super::super) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn counters_of_tcp_and_ports_are_read() {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let root = tree(&[
            ("proc/net/snmp", SNMP),
            ("proc/net/netstat", NETSTAT),
            (&format!("{port}/counters/link_downed"), "3\n"),
            (&format!("{port}/counters/symbol_error"), "N/A\n"),
            (&format!("{port}/hw_counters/out_of_sequence"), "44\n"),
        ]);
        let reading = read(root.path()).unwrap();
        let expected = [
            ("infiniband_link_downed/mlx5_0:1", 3),
            ("infiniband_out_of_sequence/mlx5_0:1", 44),
            ("tcp_listen_drops", 4),
            ("tcp_receive_errors", 2),
            ("tcp_retransmitted_segments", 7),
            ("tcp_sent_segments", 600),
            ("tcp_timeouts", 5),
        ];
        let found: Vec<(&str, u64)> = reading.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unreadable_and_malformed_files_have_no_values() {
        let why = read(tree(&[]).path()).unwrap_err();
        assert!(why.starts_with("/proc/net/snmp: "), "{why}");
        for snmp in [
            "",
            "Tcp:\n",
            "Tcp: RetransSegs\n",
            "Tcp: RetransSegs\nTcp: -5\n",
            "Tcp: RetransSegs\nTcp: 99999999999999999999999\n",
        ] {
            let root = tree(&[("proc/net/snmp", snmp)]);
            assert_eq!(read(root.path()), Ok(Reading::new()), "{snmp:?}");
        }
    }
}
