%% @doc Types of {@link wasmtime}: errors. The functions are the library's own.
%% @end
%% Errors as data: a class, a kind and a message. Native code makes most of them; those that Erlang
%% finds by itself are made here, in the same shape.
-module(wasmtime_error).

-export([new/3, badarg/2, badarg/3, text/2]).
-export_type([class/0, kind/0, frame/0, t/0]).

-type class() :: compile | link | instantiate | limit | pool | call | memory | global
               | table | ref | trap
               | exit | host | stream | preinit | internal.
-type kind() :: atom().
-type frame() :: #{func_index := non_neg_integer(),
                   func_offset := non_neg_integer() | undefined,
                   func_name := binary() | undefined,
                   module_name := binary() | undefined}.
-type t() :: #{class := class(),
               kind := kind(),
               message := binary(),
               status => integer(),
               trace => [frame()],
               key => term()}.

%% Characters of a foreign term that a message may show.
-define(CHARS, 500).

%% @doc An error of any kind.
%% @private
-spec new(class(), kind(), binary()) -> t().
new(Class, Kind, Message) ->
    #{class => Class, kind => Kind, message => Message}.

%% @doc An argument that cannot be taken.
%% @private
-spec badarg(class(), binary()) -> t().
badarg(Class, Message) ->
    new(Class, badarg, Message).

%% @doc An option that cannot be taken, named by its key.
%% @private
-spec badarg(class(), term(), binary()) -> t().
badarg(Class, Key, Message) ->
    (badarg(Class, Message))#{key => Key}.

%% @doc A message, cut when a term in it is long.
%% @private
-spec text(io:format(), [term()]) -> binary().
text(Format, Args) ->
    Chars = io_lib:format(Format, Args, [{chars_limit, ?CHARS}]),
    case unicode:characters_to_binary(Chars) of
        Text when is_binary(Text) -> Text;
        _ -> iolist_to_binary(io_lib:format("~w", [Chars]))
    end.
