%% The examples that a reader copies work as they stand.
-module(readme_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% Every Erlang block of the README under "Example" runs, in order, in one shell.
t_readme_example(_) ->
    Blocks = blocks("README.md", "Example"),
    ?assertMatch([_ | _], Blocks),
    lists:foldl(fun run/2, erl_eval:new_bindings(), Blocks).

%% So does that of the page on links.
t_links_example(_) ->
    [Block] = blocks("docs/links.md", "Example"),
    run(Block, erl_eval:new_bindings()).

%% And that of the page on calls.
t_calls_example(_) ->
    [Block] = blocks("docs/calls.md", "Example"),
    run(Block, erl_eval:new_bindings()).

%% So do those of the page about references.
t_references_page(_) ->
    Blocks = blocks("docs/references.md", "A walk through"),
    ?assertMatch([_, _ | _], Blocks),
    lists:foldl(fun run/2, erl_eval:new_bindings(), Blocks).

%% So do those of the page about streams.
t_streams_example(_) ->
    Blocks = blocks("docs/streams.md", "Example"),
    ?assertMatch([_ | _], Blocks),
    lists:foldl(fun run/2, erl_eval:new_bindings(), Blocks).

%% Every Erlang block of the page on servers and pools runs, in order, in one shell.
t_pool_page(Config) -> page("docs/pool.md", Config).

%% So do those of the page on artifacts.
t_artifacts_page(Config) -> page("docs/artifacts.md", Config).

page(File, Config) ->
    Blocks = blocks(File),
    ?assertMatch([_, _ | _], Blocks),
    {ok, Old} = file:get_cwd(),
    ok = file:set_cwd(wasmtime_test:temp(Config, "page")),
    try lists:foldl(fun run/2, erl_eval:new_bindings(), Blocks)
    after file:set_cwd(Old)
    end.

%% The Erlang blocks of a file.
blocks(File) ->
    {ok, Text} = file:read_file(filename:join(wasmtime_test:root(), File)),
    found(Text).

%% The Erlang blocks of a file between a heading with this word and the next one.
blocks(File, Heading) ->
    {ok, Text} = file:read_file(filename:join(wasmtime_test:root(), File)),
    [_, After | _] = re:split(Text, ["\n#+ [^\n]*", Heading, "[^\n]*\n"]),
    [Section | _] = re:split(After, "\n#+ "),
    found(Section).

found(Section) ->
    case re:run(Section, "```erlang\n(.*?)\n```", [global, dotall, {capture, [1], binary}]) of
        {match, Matches} -> [Block || [Block] <- Matches];
        nomatch -> []
    end.

run(Block, Bindings) ->
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Block)),
    lists:foldl(fun(Form, Acc) ->
        {ok, Exprs} = erl_parse:parse_exprs(Form),
        {value, _, Next} = erl_eval:exprs(Exprs, Acc),
        Next
    end, Bindings, forms(Tokens, [], [])).

%% A block may hold several shell commands: each ends with a dot.
forms([], [], Forms) -> lists:reverse(Forms);
forms([{dot, _} = Dot | Rest], Form, Forms) ->
    forms(Rest, [], [lists:reverse([Dot | Form]) | Forms]);
forms([Token | Rest], Form, Forms) -> forms(Rest, [Token | Form], Forms).
