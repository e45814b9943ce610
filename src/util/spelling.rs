//! Names that are spelt wrong: the nearest right one, and a notice on environment variables.

use crate::util::collect::CollectVec as _;
use std::sync::Once;

use super::report;

/// The environment variables that the crate reads, without `CUTLET_`.
const VARIABLES: [&str; 22] = [
    "BACKEND",
    "CACHE",
    "CACHE_BYTES",
    "CACHE_DIR",
    "CHECK",
    "COMPILE_SECONDS",
    "DISABLE",
    "DUMP",
    "DUMP_FILTER",
    "EXACT",
    "LINES",
    "PROFILE",
    "PROPERTY_CASES",
    "PROPERTY_SEED",
    "PROVE",
    "PTXAS",
    "REMARKS",
    "REPORT",
    "TARGET",
    "TILEIR",
    "TILEIRAS",
    "TESTS",
];

/// Maximum number of different letters of a name and its suggested correction.
const MAX_DISTANCE: usize = 2;

/// Returns the number of letters to insert, remove, replace or swap with the next one, from `a` to
/// `b` (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect_vec(), b.chars().collect_vec());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}

/// Returns the name of a list that is nearest to `name`, if few letters differ.
pub(crate) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let limit = MAX_DISTANCE.min(name.chars().count() / 3);
    let distances = names.into_iter().map(|other| (distance(name, other), other));
    distances.min_by_key(|&(distance, _)| distance).filter(|&(distance, _)| distance <= limit).map(|(_, other)| other)
}

/// Returns the notice on an environment variable that resembles one of the crate's.
fn notice(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("CUTLET_")?;
    if VARIABLES.contains(&name) {
        return None;
    }
    let nearest = nearest(&name.to_uppercase(), VARIABLES)?;
    Some(format!("the environment variable {variable} has no meaning: did you mean CUTLET_{nearest}?"))
}

/// Prints a notice on each environment variable that resembles one of the crate's, once.
pub(crate) fn check_environment() {
    static CHECKED: Once = Once::new();
    CHECKED.call_once(|| {
        let mut notices: Vec<String> = std::env::vars_os().filter_map(|(name, _)| notice(name.to_str()?)).collect_vec();
        notices.sort();
        notices.iter().for_each(|notice| report::warning(notice));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_found() {
        for (wrong, right) in
            [("BACKND", "BACKEND"), ("TAGRET", "TARGET"), ("DUMPS", "DUMP"), ("CACHEDIR", "CACHE_DIR")]
        {
            let notice = notice(&format!("CUTLET_{wrong}")).unwrap();
            assert!(notice.ends_with(&format!("CUTLET_{right}?")), "{notice}");
        }
        for other in ["CUTLET_BACKEND", "CUTLET_LATE", "CUTLET_TILEIRDISASM", "CUTLET_APP", "PATH", "CUTLET_"] {
            assert_eq!(notice(other), None);
        }
    }
}
