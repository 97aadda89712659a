//! Recognises lines of the kernel's log that tell of an error of the machine. Everything else that
//! the kernel logs is of no interest to a job.

use super::ErrorPlace;
use super::MachineErrorKind::{self, *};

/// Returns the kind of the error that a line tells of, and its device if the line has the address.
pub(super) fn recognise(line: &str) -> Option<(MachineErrorKind, Option<ErrorPlace>)> {
    let has = |words: &str| line.contains(words);
    if let Some((number, address)) = numbered(line, "SXid (") {
        return Some((Switch(number), Some(address)));
    }
    if let Some((number, address)) = numbered(line, "NVRM: Xid (") {
        return Some((Xid(number), Some(address)));
    }
    let is_network =
        ["mlx4_", "mlx5_", "bnxt_en", "ice ", "ixgbe", "i40e", "ena ", "irdma", "hfi1"]
            .iter()
            .any(|driver| line.starts_with(driver));
    let kind = if has("Killed process ") && has("total-vm") || has("ut of memory: Kill") {
        OomKill
    } else if has("nfs: server ") && has(" not responding")
        || line.starts_with("LustreError:")
        || has("Lustre: ") && has("was lost")
    {
        FileServer
    } else if has("blocked for more than") || has("soft lockup") || has("self-detected stall") {
        StuckTask
    } else if has("temperature above threshold") {
        Overheated
    } else if has("AER: ") || has("PCIe Bus Error") {
        Pcie
    } else if has("[Hardware Error]") || line.starts_with("EDAC ") || line.starts_with("mce: ") {
        return is_hardware_error(line).then_some((Hardware, None));
    } else if has("ink is Down") || has("ink down") || has("ink is down") {
        LinkDown
    } else if is_network
        && ["health compromised", "timeout", "error", "Error", "unplugged"].iter().any(|w| has(w))
    {
        NetworkDevice
    } else if is_file_system_error(line) {
        FileSystem
    } else if is_storage_error(line) {
        Storage
    } else {
        return None;
    };
    Some((kind, None))
}

/// Parses `NAME (PCI:0000:3b:00): 79, …`.
fn numbered(line: &str, name: &str) -> Option<(u32, ErrorPlace)> {
    let (address, rest) = line.split_once(name)?.1.split_once("): ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    let address = address.strip_prefix("PCI:").unwrap_or(address);
    let is_address = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
    let is_plausible =
        !address.is_empty() && address.len() <= 16 && address.chars().all(is_address);
    Some((digits.parse().ok()?, ErrorPlace::Pci(address.to_owned()))).filter(|_| is_plausible)
}

/// Lines about machine checks that are no errors tell at the start which driver was loaded.
fn is_hardware_error(line: &str) -> bool {
    let of_memory = line.starts_with("EDAC ") && (line.contains(" CE ") || line.contains(" UE "));
    of_memory || line.contains("[Hardware Error]")
}

fn is_file_system_error(line: &str) -> bool {
    let of = |name: &str| line.starts_with(name);
    let has = |words: &str| line.contains(words);
    let is_of_file_system = of("EXT4-fs") || of("XFS") || of("BTRFS") || of("JBD2") || of("F2FS");
    has("Remounting filesystem read-only")
        || is_of_file_system
            && (has("error") || has("Error") || has("orruption") || has("shut") || has("Abort"))
}

fn is_storage_error(line: &str) -> bool {
    let has = |words: &str| line.contains(words);
    let of_disk = has("I/O error") || has("critical medium error") || has("critical target error");
    let of_controller = ["timeout", "controller is down", "resetting controller", "Abort status"];
    of_disk || line.starts_with("nvme ") && of_controller.iter().any(|words| has(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_have_the_kind_of_their_error() {
        for (line, kind) in [
            (
                "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                Xid(79),
            ),
            ("NVRM: Xid (0000:03:00): 14, Channel 00000001", Xid(14)),
            (
                "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
                Switch(12028),
            ),
            ("Out of memory: Killed process 77 (python3) total-vm:9kB, anon-rss:1kB", OomKill),
            ("Memory cgroup out of memory: Killed process 77 (python3) total-vm:9kB", OomKill),
            ("Out of memory: Kill process 77 (python3) score 900 or sacrifice child", OomKill),
            ("nfs: server 10.0.0.7 not responding, still trying", FileServer),
            ("LustreError: 11-0: scratch-OST0001: operation ost_read failed", FileServer),
            ("INFO: task python3:1234 blocked for more than 122 seconds.", StuckTask),
            ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:99]", StuckTask),
            ("CPU12: Core temperature above threshold, cpu clock throttled", Overheated),
            ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0", Pcie),
            ("mce: [Hardware Error]: Machine check events logged", Hardware),
            ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0", Hardware),
            ("mlx5_core 0000:5e:00.0 enp94s0: Link down", LinkDown),
            ("ixgbe 0000:02:00.0 eth0: NIC Link is Down", LinkDown),
            ("mlx5_core 0000:5e:00.0: health compromised - reached miss count", NetworkDevice),
            ("I/O error, dev nvme0n1, sector 5 op 0x0:(READ)", Storage),
            ("nvme nvme0: I/O 12 QID 3 timeout, aborting", Storage),
            ("EXT4-fs error (device sda1): ext4_lookup:1: inode #2", FileSystem),
            ("XFS (sdb1): Corruption of in-memory data detected.", FileSystem),
        ] {
            assert_eq!(recognise(line).map(|found| found.0), Some(kind), "{line}");
        }
        let xid = recognise("NVRM: Xid (PCI:0000:3b:00): 79, x").unwrap();
        assert_eq!(xid.1, Some(ErrorPlace::Pci("0000:3b:00".to_owned())));
    }

    #[test]
    fn other_lines_and_malformed_ones_are_left_out() {
        for line in [
            "",
            "random: crng reseeded due to virtual machine fork",
            "EXT4-fs (vda): mounted filesystem r/w without journal. Quota mode: none.",
            "tokio-rt-worker (70): drop_caches: 3",
            "EDAC MC: Ver: 3.0.0",
            "mce: CPU0: Thermal monitoring enabled (TM1)",
            "nvme nvme0: 4/0/0 default/read/poll queues",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.1",
            "NVRM: Xid (PCI:0000:3b:00)",
            "NVRM: Xid (): 79,",
            "NVRM: Xid (PCI:0000:3b:00): , no number",
            "NVRM: Xid (PCI:0000:3b:00): 99999999999999, too large",
            "NVRM: Xid (a b on GPU 3: x): 79, not an address",
            "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
            "mlx5_core 0000:5e:00.0 enp94s0: Link up",
        ] {
            assert_eq!(recognise(line), None, "{line}");
        }
    }
}
