// Every view of the page; each makes itself known to the router.

import "./overview.js";
import "./future.js";
import "./topics.js";
