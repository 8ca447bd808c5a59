// All views of the page; each registers itself with the router.

import "./overview.js";
import "./future.js";
import "./topics.js";
import "./groups.js";
import "./search.js";
import "./message.js";
import "./many.js";
import "./dead_letters.js";
import "./schedules.js";
import "./problems.js";
