//! Checks which statements are allowed: those that only read, and read only the runs that the
//! command line names. A statement that could write, or read another file, is refused before it is
//! planned. As a second line of defence, the plan is checked too.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{ShowStatementOptions, Statement};

/// A refused statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Kind of the statement, as typed: `COPY`.
    pub what: String,
    /// Advice: a statement to try instead.
    pub hint: &'static str,
}

/// Statements that may be executed.
pub const ALLOWED: &str = "SELECT, WITH, VALUES, EXPLAIN, SHOW TABLES, DESCRIBE, CREATE VIEW";

/// Refuses a statement by its kind.
pub fn check(statement: &Parsed) -> Result<(), Refused> {
    let refused = |what: &str, hint| Err(Refused { what: what.to_owned(), hint });
    match statement {
        Parsed::CopyTo(_) => refused("COPY", "-o FILE --format parquet writes a result"),
        Parsed::CreateExternalTable(_) => {
            refused("CREATE EXTERNAL TABLE", "name further runs on the command line")
        }
        Parsed::Reset(_) => refused("RESET", "options are on the command line"),
        Parsed::Explain(explain) => check(&explain.statement),
        Parsed::Statement(statement) => match &**statement {
            Statement::Query(_)
            | Statement::ShowTables { .. }
            | Statement::ShowFunctions { .. }
            | Statement::ShowVariable { .. }
            | Statement::ExplainTable { .. } => Ok(()),
            Statement::CreateView(view) if !view.materialized => Ok(()),
            Statement::ShowColumns { extended: false, full: false, show_options }
                if is_of_a_table(show_options) =>
            {
                Ok(())
            }
            Statement::ShowColumns { .. } => {
                refused("SHOW COLUMNS with a choice", "DESCRIBE table")
            }
            Statement::Set(_) => {
                refused("SET", "--memory-limit and --threads are on the command line")
            }
            Statement::Explain { statement, .. } => {
                check(&Parsed::Statement(Box::new((**statement).clone())))
            }
            other => refused(&first_words(&other.to_string()), "CREATE VIEW name AS SELECT …"),
        },
    }
}

/// Whether a `SHOW COLUMNS` names only a table, without a filter.
fn is_of_a_table(options: &ShowStatementOptions) -> bool {
    let ShowStatementOptions { show_in, starts_with, limit, limit_from, filter_position } = options;
    let is_all = starts_with.is_none() && limit.is_none() && limit_from.is_none();
    is_all
        && filter_position.is_none()
        && show_in.as_ref().is_some_and(|of| of.parent_name.is_some())
}

/// Refuses a plan that contains anything but a query or a view.
pub fn check_plan(plan: &LogicalPlan) -> Result<(), Refused> {
    let mut refused = None;
    let of_plan = |node: &LogicalPlan| {
        let what = match node {
            LogicalPlan::Ddl(DdlStatement::CreateView(_)) => None,
            LogicalPlan::Ddl(ddl) => Some(ddl.name().to_owned()),
            LogicalPlan::Dml(dml) => Some(dml.op.name().to_owned()),
            LogicalPlan::Copy(_) => Some("COPY".to_owned()),
            LogicalPlan::Statement(statement) => Some(statement.name().to_owned()),
            _ => None,
        };
        match what {
            Some(what) => {
                refused = Some(Refused { what, hint: "CREATE VIEW name AS SELECT …" });
                Ok(TreeNodeRecursion::Stop)
            }
            None => Ok(TreeNodeRecursion::Continue),
        }
    };
    let walked = plan.apply_with_subqueries(of_plan);
    match (refused, walked) {
        (Some(refused), _) => Err(refused),
        (None, Ok(_)) => Ok(()),
        (None, Err(error)) => Err(Refused { what: error.to_string(), hint: "" }),
    }
}

/// Returns the keywords with which a statement begins: `DROP TABLE` for `DROP TABLE kernels`.
pub fn first_words(text: &str) -> String {
    let is_keyword = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase());
    let words: Vec<&str> = text.split_whitespace().take(2).take_while(is_keyword).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParser;

    #[test]
    fn statements_that_only_read_are_allowed() {
        for text in [
            "SELECT 1",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "VALUES (1)",
            "EXPLAIN ANALYZE SELECT 1",
            "SHOW TABLES",
            "DESCRIBE kernels",
            "SHOW COLUMNS IN kernels",
            "CREATE VIEW a AS SELECT 1",
            "CREATE OR REPLACE VIEW a AS SELECT 1",
        ] {
            let parsed = DFParser::parse_sql(text).unwrap();
            assert_eq!(check(&parsed[0]), Ok(()), "{text}");
        }
    }

    #[test]
    fn statements_that_write_or_read_other_files_are_refused() {
        for (text, what) in [
            ("COPY (SELECT 1) TO 'a.csv'", "COPY"),
            ("EXPLAIN COPY (SELECT 1) TO 'a.csv'", "COPY"),
            ("CREATE EXTERNAL TABLE a STORED AS CSV LOCATION '/etc'", "CREATE EXTERNAL TABLE"),
            ("INSERT INTO kernels VALUES (1)", "INSERT INTO"),
            ("CREATE TABLE a AS SELECT 1", "CREATE TABLE"),
            ("DROP TABLE kernels", "DROP TABLE"),
            ("DELETE FROM kernels", "DELETE FROM"),
            ("UPDATE kernels SET a = 1", "UPDATE"),
            ("SET datafusion.execution.batch_size = 1", "SET"),
            ("PREPARE a AS SELECT 1", "PREPARE"),
            ("SHOW COLUMNS FROM kernels LIKE 'a%'", "SHOW COLUMNS with a choice"),
        ] {
            let parsed = DFParser::parse_sql(text).unwrap();
            assert_eq!(check(&parsed[0]).unwrap_err().what, what, "{text}");
        }
    }
}
