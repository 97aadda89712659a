//! Configures Azure Blob Storage from variables `AZURE_STORAGE_…`: both those that Azure's own
//! tools read, such as the connection string, and those that the client library reads.

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::environment::{Unusable, is_local_without_tls, of_environment};

/// Variable that contains all settings. If it is set, no other variable with credentials is read.
const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
/// Variables of Azure's tools that the client library does not know, with the names under which the
/// library knows the setting.
const OF_TOOLS: [(&str, &str, AzureConfigKey); 3] = [
    ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", AzureConfigKey::AccountName),
    ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", AzureConfigKey::AccessKey),
    ("AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", AzureConfigKey::Endpoint),
];
/// Default domain of accounts.
const SUFFIX: &str = "core.windows.net";

/// Reads the settings from the environment; `variable` returns values that are not empty.
pub fn settings(
    variable: impl Fn(&str) -> Option<String>,
) -> object_store::Result<MicrosoftAzureBuilder> {
    let mut builder = match variable(CONNECTION) {
        Some(text) => of_environment("AZURE_")
            .filter(|(key, _)| matches!(key, AzureConfigKey::Client(_)))
            .chain(connection(&text).map_err(wrong)?)
            .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| {
                builder.with_config(key, value)
            }),
        None => OF_TOOLS
            .into_iter()
            .filter(|(_, of_client, _)| variable(of_client).is_none())
            .filter_map(|(name, _, key)| Some((key, variable(name)?)))
            .fold(MicrosoftAzureBuilder::from_env(), |builder, (key, value)| {
                builder.with_config(key, value)
            }),
    };
    let address = builder.get_config_value(&AzureConfigKey::Endpoint);
    if address.is_some_and(|address| is_local_without_tls(&address)) {
        builder = builder.with_allow_http(true);
    }
    Ok(builder)
}

/// Parses the fields of a connection string for the client. Errors never contain a value of it.
fn connection(text: &str) -> Result<Vec<(AzureConfigKey, String)>, String> {
    let mut fields = Vec::new();
    for field in text.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        // Only the first `=` separates: access keys are base64 and may end with `=`.
        let (key, value) =
            field.split_once('=').ok_or_else(|| "a field of it is not KEY=VALUE".to_owned())?;
        fields.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let field = |name: &str| {
        let found = fields.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    };
    if field("usedevelopmentstorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(vec![(AzureConfigKey::UseEmulator, "true".to_owned())]);
    }
    let endpoint = field("blobendpoint").map(|url| url.trim_end_matches('/').to_owned());
    let account = field("accountname")
        .or_else(|| account_of(endpoint.as_deref()?))
        .ok_or("it has neither AccountName nor BlobEndpoint")?;
    let endpoint = endpoint.unwrap_or_else(|| {
        let protocol = field("defaultendpointsprotocol").unwrap_or_else(|| "https".to_owned());
        let suffix = field("endpointsuffix").unwrap_or_else(|| SUFFIX.to_owned());
        format!("{protocol}://{account}.blob.{suffix}")
    });
    let mut settings =
        vec![(AzureConfigKey::AccountName, account), (AzureConfigKey::Endpoint, endpoint)];
    match (field("accountkey"), field("sharedaccesssignature")) {
        (Some(key), _) => settings.push((AzureConfigKey::AccessKey, key)),
        (None, Some(token)) => settings.push((AzureConfigKey::SasKey, token)),
        (None, None) => return Err("it has neither AccountKey nor SharedAccessSignature".into()),
    }
    Ok(settings)
}

/// Returns the account in `https://ACCOUNT.blob.…` or, for a server without a host name of its own,
/// in `http://HOST/ACCOUNT`.
fn account_of(endpoint: &str) -> Option<String> {
    let (_, rest) = endpoint.split_once("://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let account = if path.is_empty() { host.split('.').next()? } else { path.split('/').next()? };
    Some(account.to_owned()).filter(|account| !account.is_empty())
}

fn wrong(why: String) -> object_store::Error {
    let source = Box::new(Unusable(format!("{CONNECTION}: {why}")));
    object_store::Error::Generic { store: "MicrosoftAzure", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, key: AzureConfigKey) -> Option<String> {
        let of = |name: &str| (name == CONNECTION).then(|| text.to_owned());
        settings(of).unwrap().get_config_value(&key)
    }

    #[test]
    fn a_connection_string_is_read_as_azures_tools_read_it() {
        let of_portal = "DefaultEndpointsProtocol=https;AccountName=jobs;AccountKey=a2V5+/==;\
                         EndpointSuffix=core.chinacloudapi.cn";
        assert_eq!(
            value(of_portal, AzureConfigKey::Endpoint).unwrap(),
            "https://jobs.blob.core.chinacloudapi.cn"
        );
        assert_eq!(value(of_portal, AzureConfigKey::AccessKey).unwrap(), "a2V5+/==");
        let with_token = "BlobEndpoint=https://jobs.blob.core.windows.net/;\
                          SharedAccessSignature=sv=2022&sig=c2ln%3D;";
        assert_eq!(value(with_token, AzureConfigKey::AccountName).unwrap(), "jobs");
        assert_eq!(value(with_token, AzureConfigKey::SasKey).unwrap(), "sv=2022&sig=c2ln%3D");
        assert_eq!(value(with_token, AzureConfigKey::AccessKey), None);
        let of_server = "AccountName=devstoreaccount1;AccountKey=a2V5;\
                         BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;";
        let endpoint = value(of_server, AzureConfigKey::Endpoint).unwrap();
        assert_eq!(endpoint, "http://127.0.0.1:10000/devstoreaccount1");
        assert_eq!(account_of(&endpoint).unwrap(), "devstoreaccount1");
        let here = "UseDevelopmentStorage=true";
        assert_eq!(value(here, AzureConfigKey::UseEmulator).unwrap(), "true");
    }

    #[test]
    fn errors_about_a_connection_string_contain_no_secret() {
        for text in ["secret", "AccountKey=secret", "AccountName=jobs;secret", "AccountName=secret"]
        {
            let why = connection(text).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn names_of_azures_tools_are_read() {
        let of = |name: &str| match name {
            "AZURE_STORAGE_ACCOUNT" => Some("jobs".to_owned()),
            "AZURE_STORAGE_KEY" => Some("a2V5".to_owned()),
            _ => None,
        };
        let builder = settings(of).unwrap();
        let value = |key| builder.get_config_value(&key);
        assert_eq!(value(AzureConfigKey::AccountName).as_deref(), Some("jobs"));
        assert_eq!(value(AzureConfigKey::AccessKey).as_deref(), Some("a2V5"));
    }
}
