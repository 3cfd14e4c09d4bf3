//! What machines cost on demand, as AWS's price list says (aws.md 3.7). EC2 itself does not tell.

use serde_json::{Value, json};

use super::super::CloudError;
use super::signed::{SignedClient, SignedFailure};
use crate::model::catalog::OnDemandPrices;
use crate::model::money::UsdPerHour;
use crate::model::name::TypeName;

const CALL: &str = "GetProducts";
/// The most that the service gives in one answer.
const PRODUCTS_PER_PAGE: u32 = 100;
/// Ten times what any region has: an answer that never ends is none.
const PAGES_MAX: usize = 500;
/// Tenancy and family of machines that are rented whole or in part.
const FAMILIES: [(&str, &str); 2] =
    [("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)")];

/// Whether the price list can be asked about `region`: GovCloud's accounts have no access to it.
pub(super) fn are_listed(region: &str) -> bool {
    !region.starts_with("us-gov-") && !region.starts_with("us-iso")
}

/// What every type costs in `region`. Nothing is taken from an answer of which a part is missing.
pub(super) async fn on_demand(client: &SignedClient, region: &str) -> Result<OnDemandPrices, CloudError> {
    let [shared, metal] = FAMILIES.map(|family| list(client, region, family));
    let (mut prices, metal) = tokio::try_join!(shared, metal)?;
    prices.extend(metal);
    Ok(prices)
}

async fn list(
    client: &SignedClient,
    region: &str,
    (tenancy, family): (&str, &str),
) -> Result<OnDemandPrices, CloudError> {
    let filters: Vec<Value> = [
        ("regionCode", region),
        ("serviceCode", "AmazonEC2"),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ]
    .map(|(field, value)| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value }))
    .into();
    let mut prices = OnDemandPrices::new();
    let mut request = json!({
        "ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "MaxResults": PRODUCTS_PER_PAGE,
        "Filters": filters,
    });
    for _ in 0..PAGES_MAX {
        let answer = client.price_list(&request).await.map_err(|failure| failure.into_cloud(CALL, region))?;
        let products = answer.get("PriceList").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        prices
            .extend(products.iter().filter_map(|product| read_product(product.as_str()?, currency(region))));
        match answer.get("NextToken").and_then(Value::as_str).filter(|token| !token.is_empty()) {
            Some(token) => request["NextToken"] = token.into(),
            None if prices.is_empty() => return Err(CloudError::Empty { call: CALL, region: region.into() }),
            None => return Ok(prices),
        }
    }
    let endless = SignedFailure { code: "Endless".into(), message: format!("more than {PAGES_MAX} pages") };
    Err(endless.into_cloud(CALL, region))
}

fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

/// One entry of the list, a document of its own. What costs nothing is not for sale.
fn read_product(text: &str, currency: &str) -> Option<(TypeName, UsdPerHour)> {
    let product: Value = serde_json::from_str(text).ok()?;
    let name = product.pointer("/product/attributes/instanceType")?.as_str()?;
    let terms = product.pointer("/terms/OnDemand")?.as_object()?;
    let dimensions = terms.values().filter_map(|term| term.get("priceDimensions")?.as_object());
    let prices = dimensions.flat_map(|of_term| of_term.values()).filter_map(|dimension| {
        let amount = dimension.get("pricePerUnit")?.get(currency)?.as_str()?;
        amount.parse::<UsdPerHour>().ok()
    });
    let price = prices.into_iter().find(|price| *price > UsdPerHour::default())?;
    Some((TypeName::new(name), price))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_393_a_product_is_read_in_its_currency_as_the_price_list_writes_it() {
        let product = |amounts: [&str; 2], currency: &str| {
            let dimension = |amount| json!({ "unit": "Hrs", "pricePerUnit": { currency: amount } });
            json!({
                "product": { "attributes": { "instanceType": "m5.large", "regionCode": "eu-west-1" } },
                "terms": { "OnDemand": { "SKU.JRTCKXETXF": { "priceDimensions": {
                    "SKU.JRTCKXETXF.1": dimension(amounts[0]), "SKU.JRTCKXETXF.2": dimension(amounts[1]),
                } } } },
            })
            .to_string()
        };
        let large = |price: &str| Some((TypeName::new("m5.large"), price.parse().expect("a price")));
        assert_eq!(read_product(&product(["0.0000000000", "0.1070000000"], "USD"), "USD"), large("0.107"));
        assert_eq!(read_product(&product(["0.79", "0"], "CNY"), "CNY"), large("0.79"));
        assert_eq!(read_product(&product(["0.79", "0"], "CNY"), "USD"), None);
        assert_eq!(read_product(&product(["0", "0"], "USD"), "USD"), None, "nothing is for free");
        assert_eq!(read_product("{", "USD"), None);
    }

    #[test]
    fn aws_398_the_price_list_is_not_asked_about_govcloud() {
        assert!(are_listed("eu-west-1") && are_listed("cn-north-1"));
        assert!(!are_listed("us-gov-west-1"));
    }
}
