%% The kinds of work of the soak, and what they share: modules, pools and a folder, never an instance.
%% A strain is a function of that set. It does some requests, checks their answers and gives all results
%% that it saw, errors included; what must not happen makes it crash.
-module(soak_strains).

-export([set_up/1, tear_down/1, names/1, pools/1, round/3]).
-export_type([set/0]).

-import(wasmtime_test, [mod/1, mod/2]).

-type set() :: #{dir := file:filename(), atom() => term()}.

-define(MIB, 1048576).

%% Each is a function of the module.
-define(STRAINS, #{soak_guests => [tenants, forks, states, hostile, hosts, exits, files, modules, objects, links],
                   soak_crowds => [deaths, calls, echo, storm, pool, server]}).

%% @doc Compiles the guests and pre-initializes CPython.
-spec set_up(soak:options()) -> set().
set_up(Options) ->
    {ok, _} = application:ensure_all_started(crypto),
    Dir = filename:join("/tmp", "wasmtime_soak_" ++ os:getpid()),
    ok = filelib:ensure_dir(filename:join([Dir, "files", "x"])),
    ok = file:change_mode(Dir, 8#700),
    Pooled = wasmtime_test:pool(#{instances => 64, keep_resident => ?MIB}),
    Set = #{dir => Dir, links => links_SUITE:main(#{}), refs => reference_SUITE:mod(),
            memory => mod(memory, Pooled), hostile => mod(hostile, Pooled)},
    Plain = maps:from_list([{Name, mod(Name)} || Name <- [loop, wasi, start_trap, start_host, host, channel,
                                                          stdio]]),
    python(Options, maps:merge(Plain, Set)).

python(#{python := Reactor}, #{dir := Dir} = Set) ->
    Config = [{priv_dir, Dir}],
    Artifact = isolation_SUITE:prepare(Reactor, Config),
    Pool = wasmtime_test:pool(#{instances => 2, max_memory => 256 * ?MIB, keep_resident => 16 * ?MIB}),
    {ok, Mod} = wasmtime:deserialize_file(Artifact, Pool),
    Set#{python => Mod, config => [{reactor, Reactor} | Config]};
python(_, Set) ->
    Set.

%% @doc Removes the folder.
-spec tear_down(set()) -> ok.
tear_down(#{dir := Dir}) -> file:del_dir_r(Dir).

%% @doc The strains; with CPython if the guest is there.
-spec names(set()) -> [{module(), atom()}].
names(Set) ->
    [{Module, Name} || {Module, Names} <- maps:to_list(?STRAINS), Name <- Names]
        ++ [{soak_guests, python} || is_map_key(python, Set)].

%% @doc The modules whose pools must be empty at rest.
-spec pools(set()) -> [wasmtime:wasm_module()].
pools(Set) -> [map_get(Name, Set) || Name <- [memory, hostile, python], is_map_key(Name, Set)].

%% @doc One round of a strain, with its own random numbers.
-spec round({module(), atom()}, {integer(), integer(), integer()}, set()) -> [term()].
round({Module, Name}, Random, Set) ->
    _ = rand:seed(exsss, Random),
    Module:Name(Set).
