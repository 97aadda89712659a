//! Defines views over the tables: SQL that answers the same questions as reports. DuckDB,
//! DataFusion, Spark and Trino accept the SQL without changes.

/// A named query over the tables, which an engine can create as a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Name of the view.
    pub name: &'static str,
    /// The statement that creates the view: comments, then the query, then a semicolon.
    pub text: &'static str,
}

macro_rules! views {
    ($($name:literal)*) => {
        &[$(View { name: $name, text: include_str!(concat!("../views/", $name, ".sql")) }),*]
    };
}

/// All views. If a view uses another view, it comes after that one.
pub const VIEWS: &[View] = views!(
    "kernel_stats" "device_time" "breakdown" "comm_overlap" "idle_gaps" "launch_delays" "meetings"
    "stragglers" "memory_curve" "step_times" "hot_functions" "roofline"
);

impl View {
    /// Returns a description in a sentence or two, which is the comment before the query.
    pub fn about(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("-- "));
        lines.collect::<Vec<_>>().join(" ")
    }

    /// Returns the query of the statement, without the final semicolon.
    pub fn query(&self) -> &'static str {
        let (_, query) = self.text.split_once(" AS\n").unwrap_or_default();
        query.trim_end().trim_end_matches(';')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_creates_a_view_of_its_name() {
        for view in VIEWS {
            let begin = format!("\nCREATE VIEW {} AS\n", view.name);
            assert!(view.text.contains(&begin), "{}", view.name);
            assert!(!view.about().is_empty(), "{}", view.name);
            assert!(view.query().starts_with("SELECT") || view.query().starts_with("WITH"));
            assert_eq!(view.text.matches(';').count(), view.about().matches(';').count() + 1);
            assert!(!crate::is_table(view.name), "{} is also a table", view.name);
        }
    }
}
