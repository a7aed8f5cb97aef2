%% The examples that a reader copies work as they stand.
-module(readme_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% Every Erlang block of the README and of each page runs, in order, in one shell; definitions of
%% functions compile.
t_pages(Config) ->
    [page(Page, Config) || Page <- ["README.md" | pages()]].

%% No page that a user works from has lost its examples.
t_examples(_) ->
    Bare = ["docs/design.md", "docs/errors.md", "docs/reliability.md"],
    ?assertEqual(lists:sort(Bare), [Page || Page <- pages(), blocks(Page) =:= []]).

%% The README names every page.
t_all_named(_) ->
    {ok, Text} = file:read_file(filename:join(wasmtime_test:root(), "README.md")),
    [?assertNotEqual({Page, nomatch}, {Page, binary:match(Text, list_to_binary(Page))}) || Page <- pages()].

pages() ->
    lists:sort(["docs/" ++ Name || Name <- filelib:wildcard("*.md", filename:join(wasmtime_test:root(), "docs"))]).

page(File, Config) ->
    {ok, Old} = file:get_cwd(),
    ok = file:set_cwd(wasmtime_test:temp(Config, filename:basename(File))),
    try lists:foldl(fun(Block, Bindings) -> run(File, Block, Bindings) end, erl_eval:new_bindings(), blocks(File))
    after file:set_cwd(Old)
    end.

%% The Erlang blocks of a file.
blocks(File) ->
    {ok, Text} = file:read_file(filename:join(wasmtime_test:root(), File)),
    found(Text).

found(Section) ->
    case re:run(Section, "```erlang\n(.*?)\n```", [global, dotall, {capture, [1], binary}]) of
        {match, Matches} -> [Block || [Block] <- Matches];
        nomatch -> []
    end.

run(File, Block, Bindings) ->
    Text = unicode:characters_to_list(Block),
    {ok, Tokens, _} = erl_scan:string(Text),
    case re:run(Text, "^[a-z_]+\\([^\n]*->$", [multiline, {capture, none}]) of
        match -> defined(forms(Tokens, [], [])), Bindings;
        nomatch -> lists:foldl(fun(Form, Acc) -> evaluated(File, Form, Acc) end, Bindings, forms(Tokens, [], []))
    end.

evaluated(File, Form, Bindings) ->
    {ok, Exprs} = erl_parse:parse_exprs(Form),
    try erl_eval:exprs(Exprs, Bindings) of
        {value, _, Next} -> Next
    catch
        error:Reason -> error({File, Reason, lists:flatten(erl_pp:exprs(Exprs))})
    end.

defined(Forms) ->
    Functions = [begin {ok, Function} = erl_parse:parse_form(Form), Function end || Form <- Forms],
    Module = [{attribute, 1, module, page}, {attribute, 1, compile, export_all} | Functions],
    ?assertMatch({ok, page, _, []}, compile:forms(Module, [return, nowarn_export_all])).

%% A block may hold several shell commands: each ends with a dot.
forms([], [], Forms) -> lists:reverse(Forms);
forms([{dot, _} = Dot | Rest], Form, Forms) ->
    forms(Rest, [], [lists:reverse([Dot | Form]) | Forms]);
forms([Token | Rest], Form, Forms) -> forms(Rest, [Token | Form], Forms).
