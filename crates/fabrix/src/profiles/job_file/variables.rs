//! Variables in values: `${NAME}` of the environment, and fio's `$ncpus`, `$pagesize` and
//! `$mb_memory`.

/// Replaces all variables in a value. Other texts with `$` stay as they are, because
/// `filename_format` has its own.
///
/// Errors: a sentence about the variable.
pub(super) fn expanded(
    value: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| format!("`{value}` has a ${{ without its }}"))?;
        text += before;
        text += &variable(name).ok_or_else(|| format!("the environment has no variable {name}"))?;
        rest = after;
    }
    text += rest;
    for (name, number) in MACHINE {
        if text.contains(name) {
            text = text.replace(name, &number().to_string());
        }
    }
    Ok(text)
}

type Number = fn() -> u64;

/// fio's variables about the machine.
const MACHINE: [(&str, Number); 3] = [
    ("$ncpus", processors),
    ("$pagesize", page_bytes),
    ("$mb_memory", memory_mib),
];

fn processors() -> u64 {
    let count = std::thread::available_parallelism();
    count.map_or(1, |count| count.get() as u64)
}

/// Page size in bytes, from the auxiliary vector of this process.
fn page_bytes() -> u64 {
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let mut entries = vector.chunks_exact(16);
    let page = entries.find(|entry| word(&entry[..8]) == AT_PAGESZ);
    page.map_or(4096, |entry| word(&entry[8..]))
}

fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Entry of the auxiliary vector with the page size. Source: getauxval(3).
const AT_PAGESZ: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_those_of_file_names_stay() {
        let read = |text: &str| expanded(text, &|name| (name == "DISK").then(|| "ram:8M".into()));
        assert_eq!(read("a${DISK}b"), Ok("aram:8Mb".into()));
        assert_eq!(read("$jobname.$jobnum"), Ok("$jobname.$jobnum".into()));
        for text in ["$ncpus", "$pagesize", "$mb_memory"] {
            let number = read(text).ok().and_then(|text| text.parse::<u64>().ok());
            assert!(number.is_some_and(|number| number > 0), "{text}");
        }
        assert!(read("${GONE}").expect_err("unknown").contains("GONE"));
        assert!(read("${DISK").expect_err("open").contains("without its }"));
    }
}
