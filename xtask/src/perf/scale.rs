//! How throughput grows with processors: a target with 1, 2, 4 and 8 shards, as many host cores on
//! other processors, and as many pairs of bare sockets on the same ones.
//!
//! Each point is one measurement, and what disturbed it is told beside it. It has no floor: how far
//! a machine scales by itself is what the bare sockets show.

use super::Programs;
use super::ceiling::Ceiling;
use super::fabrix::{Target, bench_on};
use super::noise::{Ticks, read};
use super::report::Folder;
use super::side::{Access, Disk, Side};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const SHARDS: [usize; 4] = [1, 2, 4, 8];
/// Two shards and two host cores are the least that shows anything.
const CPUS_MIN: usize = 4;
/// No measurement begins later than this.
const TIME_MAX: Duration = Duration::from_secs(330);
/// Memory of each pair of bare sockets.
const REGION_MIB: u64 = 256;
const DISKS: [(&str, Disk); 2] = [("null", Disk::Null), ("ram", Disk::Ram)];
const LOADS: [(&str, Access, u32, u32); 4] = [
    ("4k-randread", Access::Read, 4 << 10, 32),
    ("4k-randwrite", Access::Write, 4 << 10, 32),
    ("128k-randread", Access::Read, 128 << 10, 8),
    ("128k-randwrite", Access::Write, 128 << 10, 8),
];
const HEADING: &str = "\
| disk | load | shards | IOPS | MiB/s | x one shard | bare sockets, IOPS | ours / bare | disturbed |
|---|---|---|---|---|---|---|---|---|";

/// Requests per second, and what disturbed them; the error says why there are none.
type Rate = Result<(f64, Option<String>), String>;

/// Measures all points, prints the table and leaves it as JSON in a folder below `results`.
pub(super) fn run(
    asked: &[usize],
    seconds: u32,
    programs: &Programs,
    results: &Path,
) -> Result<(), String> {
    let cpus = allowed_cpus(&read("/proc/self/status")?)?;
    let shards = match counts(asked, cpus.len())? {
        Ok(shards) => shards,
        Err(why) => {
            println!("SKIPPED: perf --scale: {why}");
            return Ok(());
        }
    };
    let folder = Folder::create(results)?;
    let mut scale = Scale {
        programs,
        seconds,
        deadline: Instant::now() + TIME_MAX,
        points: Vec::new(),
    };
    for count in shards {
        scale.measure(&pairs_of(&cpus, count))?;
    }
    println!("\n{HEADING}");
    let rows: Vec<Value> = scale.points.iter().map(|point| scale.row(point)).collect();
    folder.finish("scale.json", &rows)
}

/// The processors that this process may use, from /proc/self/status.
fn allowed_cpus(status: &str) -> Result<Vec<usize>, String> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cpus = Vec::new();
    for part in line.ok_or("no Cpus_allowed_list")?.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.parse::<usize>()
                .map_err(|error| format!("{part}: {error}"))
        };
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

/// The numbers of shards to measure. The inner error says why the machine is too small for any.
fn counts(asked: &[usize], cpus: usize) -> Result<Result<Vec<usize>, String>, String> {
    if let Some(most) = asked.iter().max() {
        return match *most <= cpus {
            true => Ok(Ok(asked.to_vec())),
            false => Err(format!("--shards {most}: there are {cpus} processors")),
        };
    }
    if cpus < CPUS_MIN {
        return Ok(Err(format!(
            "{cpus} processors show no scaling, {CPUS_MIN} are needed; `--shards 1,2` measures all the same"
        )));
    }
    let fits = |count: &usize| 2 * count <= cpus;
    Ok(Ok(SHARDS.into_iter().filter(fits).collect()))
}

/// Processors of so many pairs, target first. Both ends share them where there are too few.
fn pairs_of(cpus: &[usize], count: usize) -> Vec<[usize; 2]> {
    let cpu = |index: usize| cpus[index % cpus.len()];
    (0..count)
        .map(|index| [cpu(index), cpu(count + index)])
        .collect()
}

/// One line of the table.
struct Point {
    disk: &'static str,
    load: &'static str,
    block_bytes: u32,
    shards: usize,
    ours: Rate,
    bare: Rate,
}

struct Scale<'a> {
    programs: &'a Programs,
    seconds: u32,
    deadline: Instant,
    points: Vec<Point>,
}

impl Scale<'_> {
    /// All loads on one set of processors.
    fn measure(&mut self, pairs: &[[usize; 2]]) -> Result<(), String> {
        let bare = LOADS.map(|load| {
            self.rate("bare sockets", load.0, pairs, || {
                let side = side(Disk::Ram, load);
                let start =
                    |cpus: &[usize; 2]| Ceiling::start(&side, self.programs, *cpus, REGION_MIB);
                let pairs: Vec<Ceiling> = pairs.iter().map(start).collect::<Result<_, _>>()?;
                pairs.iter().try_for_each(|pair| pair.ask(self.seconds))?;
                let rates = pairs
                    .iter()
                    .map(|pair| Ok(pair.answer(self.seconds)?.number("iops")));
                rates.sum()
            })
        });
        let [targets, hosts] = [0, 1].map(|end| {
            let cpus: Vec<String> = pairs.iter().map(|pair| pair[end].to_string()).collect();
            cpus.join(",")
        });
        for (disk, kind) in DISKS {
            let target = Target::start_on(&side(kind, LOADS[0]), self.programs, &targets)?;
            target.fill(self.programs)?;
            for (load, bare) in LOADS.into_iter().zip(&bare) {
                let side = side(kind, load);
                let host = (hosts.as_str(), pairs.len());
                let ours = self.rate(disk, load.0, pairs, || {
                    Ok(
                        bench_on(self.programs, &target.uri, &side, self.seconds, host)?
                            .number("iops"),
                    )
                });
                self.points.push(Point {
                    disk,
                    load: load.0,
                    block_bytes: side.block_bytes,
                    shards: pairs.len(),
                    ours,
                    bare: bare.clone(),
                });
            }
        }
        Ok(())
    }

    /// Measures once, unless the time is over.
    fn rate(
        &self,
        who: &str,
        load: &str,
        pairs: &[[usize; 2]],
        measure: impl FnOnce() -> Result<f64, String>,
    ) -> Rate {
        if Instant::now() > self.deadline {
            return Err(format!("no time is left of {} s", TIME_MAX.as_secs()));
        }
        let before = Ticks::now()?;
        let iops = measure()?;
        let noise = Ticks::now()?.noise_since(&before, false);
        println!("{who}, {load}, {} of each: {iops:.0} IOPS", pairs.len());
        Ok((iops, noise.spoils()))
    }

    /// Prints a point; gives it as JSON.
    fn row(&self, point: &Point) -> Value {
        let iops = |rate: &Rate| rate.as_ref().ok().map(|(iops, _)| *iops);
        let (ours, bare) = (iops(&point.ours), iops(&point.bare));
        let ratio = |to: Option<f64>| ours.zip(to).map(|(ours, to)| ours / to);
        let same = |other: &&Point| (other.disk, other.load) == (point.disk, point.load);
        let mut alike = self.points.iter().filter(same);
        let one = alike.find(|other| other.shards == 1);
        let of_one = ratio(one.and_then(|one| iops(&one.ours)));
        let of_bare = ratio(bare);
        let mib_s = ours.map(|iops| iops * f64::from(point.block_bytes) / f64::from(1 << 20));
        let notes = [("ours", &point.ours), ("bare", &point.bare)].map(|(who, rate)| match rate {
            Ok((_, None)) => None,
            Ok((_, Some(why))) | Err(why) => Some(format!("{who}: {why}")),
        });
        let notes = notes.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let shown = |figure: Option<f64>, digits: usize| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {notes} |",
            point.disk,
            point.load,
            point.shards,
            shown(ours, 0),
            shown(mib_s, 0),
            shown(of_one, 2),
            shown(bare, 0),
            shown(of_bare, 2)
        );
        json!({
            "disk": point.disk, "load": point.load, "shards": point.shards, "iops": ours,
            "mib_s": mib_s, "of_one_shard": of_one, "bare_iops": bare, "of_bare": of_bare,
            "notes": notes,
        })
    }
}

fn side(disk: Disk, (_, access, block_bytes, depth): (&str, Access, u32, u32)) -> Side {
    Side {
        disk,
        access,
        block_bytes,
        depth,
        ..Side::BASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_shards_as_there_is_room_for_beside_as_many_host_cores() {
        let room = |cpus| counts(&[], cpus).expect("nothing was asked for");
        assert_eq!(room(16), Ok(vec![1, 2, 4, 8]));
        assert_eq!(room(7), Ok(vec![1, 2]));
        assert!(room(2).expect_err("too few").contains("4 are needed"));
        assert_eq!(counts(&[1, 2], 2), Ok(Ok(vec![1, 2])));
        assert!(counts(&[1, 3], 2).is_err());
    }

    #[test]
    fn both_ends_have_processors_of_their_own_where_there_are_enough() {
        let cpus = allowed_cpus("Name:\tx\nCpus_allowed_list:\t0-2,5\n").expect("a list");
        assert_eq!(cpus, [0, 1, 2, 5]);
        assert_eq!(pairs_of(&cpus, 2), [[0, 2], [1, 5]]);
        assert_eq!(pairs_of(&[4, 6], 2), [[4, 4], [6, 6]]);
    }

    #[test]
    fn a_point_is_shown_beside_one_shard_and_beside_bare_sockets() {
        let point = |shards: usize, iops: f64| Point {
            disk: "ram",
            load: "4k-randread",
            block_bytes: 4096,
            shards,
            ours: Ok((iops, None)),
            bare: Ok((400.0, Some("steal".to_owned()))),
        };
        let folder = Path::new("");
        let scale = Scale {
            programs: &Programs::in_folder(folder, folder),
            seconds: 1,
            deadline: Instant::now(),
            points: vec![point(1, 200.0), point(2, 300.0)],
        };
        let row = scale.row(&scale.points[1]);
        assert_eq!(row["of_one_shard"], 1.5);
        assert_eq!(row["of_bare"], 0.75);
        assert_eq!(row["notes"], "bare: steal");
        let late = Err("late".to_owned());
        let none = Point {
            ours: late,
            ..point(4, 0.0)
        };
        assert!(scale.row(&none)["iops"].is_null());
    }
}
