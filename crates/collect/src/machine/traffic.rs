//! Reads what went over the network: the bytes, errors and drops of each interface, the bytes of each
//! InfiniBand port, and the line rates of both.
//!
//! Interfaces are those of a network namespace. A process of the job may be in another one than the
//! collector (a container, `unshare -n`), whose interfaces are in that process's `/proc/PID/net/dev`.
//! Their line rates are not read, because `/sys/class/net` has the interfaces of the namespace in
//! which it was mounted. The files of InfiniBand are not divided by namespaces.

use super::network::{MOST_PLACES, Reading, placed, ports};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tprof_trace::model::counter;

/// Most network namespaces that are read beside the collector's own.
const MOST_NAMESPACES: usize = 8;
/// Value at which a counter of 32 bits of an old InfiniBand adapter stays. It says nothing any more.
const SATURATED: u64 = u32::MAX as u64;

/// The network namespaces of the job other than the collector's own: for each, by the number of its
/// inode, the processes in it.
pub type Namespaces = BTreeMap<u64, Vec<u32>>;

/// One reading of all interfaces and ports.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Values by name of the counter.
    pub reading: Reading,
    /// Number of interfaces and ports that were not read, because there are too many.
    pub left_out: usize,
    /// Why the interfaces of the collector's namespace can't be read.
    pub missing: Option<String>,
}

/// Reads the interfaces of the collector's namespace and of these, and InfiniBand ports. `root` is
/// `/`, except in tests.
pub fn read(root: &Path, namespaces: &Namespaces) -> Traffic {
    let mut traffic = Traffic::default();
    match fs::read_to_string(root.join("proc/net/dev")) {
        Ok(text) => traffic.interfaces(&text, ""),
        Err(error) => traffic.missing = Some(format!("/proc/net/dev: {error}")),
    }
    for (namespace, pids) in namespaces {
        // A process may have ended meanwhile; then another one of the namespace has the file.
        let mut texts = pids.iter().filter_map(|pid| {
            let text = fs::read_to_string(root.join(format!("proc/{pid}/net/dev"))).ok()?;
            (namespace_of(root, &pid.to_string()) == Some(*namespace)).then_some(text)
        });
        if let Some(text) = texts.next() {
            traffic.interfaces(&text, &format!("{namespace}{}", counter::PLACE));
        }
    }
    traffic.infiniband(root);
    traffic
}

impl Traffic {
    /// Reads `/proc/net/dev`: for each interface bytes, packets, errors and drops that it received,
    /// four other values, and the same of what it sent. `prefix` goes before its name.
    fn interfaces(&mut self, text: &str, prefix: &str) {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let lines = lines.filter(|(interface, _)| !interface.trim().is_empty());
        for (number, (interface, values)) in lines.enumerate() {
            if number >= MOST_PLACES {
                self.left_out += 1;
                continue;
            }
            let place = format!("{prefix}{}", interface.trim());
            let values: Vec<&str> = values.split_whitespace().collect();
            for (quantity, at) in [
                (counter::NETWORK_RECEIVED_BYTES, 0),
                (counter::NETWORK_RECEIVE_ERRORS, 2),
                (counter::NETWORK_RECEIVE_DROPS, 3),
                (counter::NETWORK_SENT_BYTES, 8),
                (counter::NETWORK_SEND_ERRORS, 10),
                (counter::NETWORK_SEND_DROPS, 11),
            ] {
                let value = values.get(at).and_then(|value| value.parse().ok());
                self.reading.extend(value.map(|value| (placed(quantity, &place), value)));
            }
        }
    }

    /// Reads the bytes of ports. InfiniBand counts data in words of 4 bytes; adapters without these
    /// counters, such as EFA, count bytes.
    fn infiniband(&mut self, root: &Path) {
        let ports = ports(root);
        self.left_out += ports.len().saturating_sub(MOST_PLACES);
        for (place, port) in ports.into_iter().take(MOST_PLACES) {
            for (quantity, words, bytes) in [
                (counter::INFINIBAND_RECEIVED_BYTES, "port_rcv_data", "rx_bytes"),
                (counter::INFINIBAND_SENT_BYTES, "port_xmit_data", "tx_bytes"),
            ] {
                let words = number(&port.join("counters").join(words));
                let words = words.filter(|words| *words != SATURATED);
                let value = words
                    .map(|words| words.saturating_mul(4))
                    .or_else(|| number(&port.join("hw_counters").join(bytes)));
                self.reading.extend(value.map(|value| (placed(quantity, &place), value)));
            }
        }
    }
}

/// Reads the line rates, in bytes a second, of the interfaces in the collector's namespace and of
/// ports. An interface without one, as loopback and most virtual ones, is absent.
pub fn line_rates(root: &Path, reading: &Reading) -> BTreeMap<String, u64> {
    let prefix = placed(counter::NETWORK_RECEIVED_BYTES, "");
    let places = reading.keys().filter_map(|name| name.strip_prefix(&prefix));
    let of_interface = |place: &str| {
        let megabits = number(&root.join("sys/class/net").join(place).join("speed"))?;
        // The kernel writes an unknown speed as -1, which is not a number here; some drivers write
        // it without its sign.
        (1..SATURATED).contains(&megabits).then(|| (place.to_owned(), megabits * 125_000))
    };
    let own = places.filter(|place| !place.contains(counter::PLACE));
    let mut rates: BTreeMap<String, u64> = own.filter_map(of_interface).collect();
    let of_port = |(place, port): (String, PathBuf)| Some((place, port_rate(&port)?));
    rates.extend(ports(root).into_iter().take(MOST_PLACES).filter_map(of_port));
    rates
}

/// Reads the rate of a port, as `200 Gb/sec (4X HDR)`.
fn port_rate(port: &Path) -> Option<u64> {
    let text = fs::read_to_string(port.join("rate")).ok()?;
    let mut words = text.split_whitespace();
    let gigabits: f64 = words.next()?.parse().ok()?;
    let is_rate = words.next() == Some("Gb/sec") && gigabits.is_finite() && gigabits > 0.0;
    is_rate.then_some((gigabits * 125e6) as u64)
}

/// Returns the network namespaces of these processes, without the collector's own, and how many
/// namespaces are not read because there are too many.
pub fn namespaces(root: &Path, pids: &[u32]) -> (Namespaces, usize) {
    let own = namespace_of(root, "self");
    let mut found = Namespaces::new();
    for pid in pids {
        let namespace = namespace_of(root, &pid.to_string());
        if let Some(namespace) = namespace.filter(|_| namespace != own && own.is_some()) {
            found.entry(namespace).or_default().push(*pid);
        }
    }
    let left_out = found.len().saturating_sub(MOST_NAMESPACES);
    found = found.into_iter().take(MOST_NAMESPACES).collect();
    (found, left_out)
}

fn namespace_of(root: &Path, process: &str) -> Option<u64> {
    let link = fs::read_link(root.join("proc").join(process).join("ns/net")).ok()?;
    link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::network::tests::tree;
    use super::*;

    const DEV: &str = "Inter-|   Receive                |  Transmit\n \
        face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n    \
        lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0\n  \
        eth0: 9 8 7 6 5 4 3 2 19 18 17 16 15 14 13 12\n";

    fn found(traffic: &Traffic) -> Vec<(&str, u64)> {
        traffic.reading.iter().map(|(name, n)| (name.as_str(), *n)).collect()
    }

    #[test]
    fn bytes_errors_and_drops_of_interfaces_and_bytes_of_ports_are_read() {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let efa = "sys/class/infiniband/rdmap0/ports/1";
        let old = "sys/class/infiniband/mthca0/ports/2";
        let root = tree(&[
            ("proc/net/dev", DEV),
            (&format!("{port}/counters/port_rcv_data"), "250\n"),
            (&format!("{port}/counters/port_xmit_data"), "1000\n"),
            (&format!("{efa}/hw_counters/rx_bytes"), "77\n"),
            (&format!("{old}/counters/port_rcv_data"), "4294967295\n"),
        ]);
        let traffic = read(root.path(), &Namespaces::new());
        let expected = [
            ("infiniband_received_bytes/mlx5_0:1", 1000),
            ("infiniband_received_bytes/rdmap0:1", 77),
            ("infiniband_sent_bytes/mlx5_0:1", 4000),
            ("network_receive_drops/eth0", 6),
            ("network_receive_drops/lo", 0),
            ("network_receive_errors/eth0", 7),
            ("network_receive_errors/lo", 0),
            ("network_received_bytes/eth0", 9),
            ("network_received_bytes/lo", 100),
            ("network_send_drops/eth0", 16),
            ("network_send_drops/lo", 0),
            ("network_send_errors/eth0", 17),
            ("network_send_errors/lo", 0),
            ("network_sent_bytes/eth0", 19),
            ("network_sent_bytes/lo", 100),
        ];
        assert_eq!(found(&traffic), expected);
        assert_eq!((traffic.left_out, &traffic.missing), (0, &None));
    }

    #[test]
    fn unreadable_and_malformed_files_have_no_values() {
        let traffic = read(tree(&[]).path(), &Namespaces::new());
        assert!(traffic.missing.unwrap().starts_with("/proc/net/dev: "));
        for dev in ["", ":\n::: : 1", "eth0: x y -1 z", "eth0:", "eth0: 99999999999999999999999"] {
            let root = tree(&[("proc/net/dev", dev)]);
            let traffic = read(root.path(), &Namespaces::new());
            assert!(found(&traffic).is_empty() && traffic.missing.is_none(), "{dev:?}");
        }
    }

    #[test]
    fn interfaces_beyond_the_most_are_counted() {
        let dev: String = (0..500).map(|n| format!("veth{n}: 0 0 1 1 0 0 0 0 0 0 1 1\n")).collect();
        let mut traffic = Traffic::default();
        traffic.interfaces(&dev, "");
        assert_eq!((traffic.reading.len(), traffic.left_out), (6 * MOST_PLACES, 500 - MOST_PLACES));
    }

    #[test]
    fn unknown_line_rates_are_absent() {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let speed = |interface: &str| format!("sys/class/net/{interface}/speed");
        let root = tree(&[
            ("proc/net/dev", "eth0: 1\neth1: 1\neth2: 1\neth3: 1\n"),
            (&speed("eth0"), "25000\n"),
            (&speed("eth1"), "-1\n"),
            (&speed("eth2"), "4294967295\n"),
            (&format!("{port}/rate"), "200 Gb/sec (4X HDR)\n"),
            ("sys/class/infiniband/mlx5_1/ports/1/rate", "\n"),
        ]);
        let traffic = read(root.path(), &Namespaces::new());
        let rates = line_rates(root.path(), &traffic.reading);
        let of = |place: &str, rate| (place.to_owned(), rate);
        assert_eq!(rates, [of("eth0", 3_125_000_000), of("mlx5_0:1", 25_000_000_000)].into());
    }

    #[test]
    fn processes_in_other_network_namespaces_have_their_own_interfaces() {
        let root = tree(&[("proc/net/dev", "eth0: 1\n"), ("proc/9/net/dev", "eth0: 5\n")]);
        for (process, namespace) in [("self", 1), ("7", 1), ("8", 2), ("9", 2)] {
            let folder = root.path().join("proc").join(process).join("ns");
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(format!("net:[{namespace}]"), folder.join("net")).unwrap();
        }
        let (namespaces, left_out) = namespaces(root.path(), &[7, 8, 9, 10]);
        assert_eq!((&namespaces, left_out), (&[(2, vec![8, 9])].into(), 0));
        // Process 8 has ended.
        let traffic = read(root.path(), &namespaces);
        let own = ("network_received_bytes/eth0", 1);
        assert_eq!(found(&traffic), [("network_received_bytes/2/eth0", 5), own]);
    }
}
